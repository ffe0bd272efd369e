"""Random allocation cases: small, so that both sides answer quickly, but with every rule.

Not included is what makes the oracle panic: policies whose range has a step and no minimum, or a step of 0,
negative counts, requests of no kind, and class selectors without CEL. The oracle tries all combinations of
devices, so there are at most a few dozen if they cannot all be allocated.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tools.conformance.allocation import objects as api
from tools.conformance.allocation.objects import Json
from tools.conformance.area import Case

_DRIVERS = ("gpu.example.com", "gpu.example.com", "gpu.example.com", "nic.example.com")
_QUANTITIES = (
    "1",
    "2",
    "3",
    "4Gi",
    "8Gi",
    "1500m",
    "10",
    "1Gi",
    "2048Mi",
    "0.5Gi",
    "1e3",
    "500m",
    "16Gi",
    "0",
)
_CEL = (
    "true",
    "true",
    "device.driver == 'gpu.example.com'",
    "device.attributes['gpu.example.com'].model == 'A'",
    "has(device.attributes['gpu.example.com'].model) && device.attributes['gpu.example.com'].model == 'A'",
    "device.attributes['gpu.example.com'].?numa.orValue(0) == 1",
    "device.allowMultipleAllocations == true",
    "device.attributes['gpu.example.com'].numa > 0",
)
_WRONG_CEL = ("device.nonsense == 1", "1 +", "device.driver", "device.attributes['x'].y == 'z'")


def _many(rng: Random, *weights: float) -> int:
    """A number from 0 on, each with its weight."""
    return rng.choices(range(len(weights)), weights)[0]


def _likely(rng: Random, probability: float) -> bool:
    return rng.random() < probability


def random_case(rng: Random) -> Case:
    """A random case."""
    slices = _slices(rng)
    classes = [_class(rng, name) for name in ("gpu", "other")]
    claims = [_claim(rng, f"claim-{index}") for index in range(1 + _many(rng, 7, 2, 1))]
    return api.case(
        "random",
        node=api.node(zone=rng.choice("ab"), rank=str(rng.randrange(8))),
        slices=slices,
        classes=classes,
        allocated=_allocated(rng, slices),
        claims=claims,
    )


def _slices(rng: Random) -> list[Json]:
    slices: list[Json] = []
    for pool in range(1 + _many(rng, 5, 4, 2)):
        slices += _pool(rng, f"pool-{pool}", rng.choice(_DRIVERS))
    rng.shuffle(slices)
    return slices


def _pool(rng: Random, pool: str, driver: str) -> list[Json]:
    counted, shared = _likely(rng, 0.35), _likely(rng, 0.35)
    binding = _likely(rng, 0.1)
    listed = [
        _device(rng, index, counted, shared, binding) for index in range(_many(rng, 0.5, 2, 4, 4, 4, 3, 2))
    ]
    if listed and _likely(rng, 0.04):
        listed.append(dict(listed[0]))
    parts: list[list[Json] | None] = [listed]
    if len(listed) > 1 and _likely(rng, 0.3):
        parts = [listed[:1], listed[1:]]
    if counted:
        parts.append(None)
    count = len(parts) + (rng.choice((-1, 1)) if _likely(rng, 0.05) else 0)
    generation = rng.randrange(1, 3)
    order = rng.sample(range(9), len(parts))
    slices = []
    for index, part in zip(order, parts, strict=True):
        one = api.published(
            part,
            name=f"{pool}-{driver[:3]}-{index}",
            driver=driver,
            pool=pool,
            count=count,
            generation=generation,
            **_selection(rng, part),
        )
        if part is None:
            one["spec"]["sharedCounters"] = _counter_sets(rng)
        slices.append(one)
    if _likely(rng, 0.15):
        slices.append(_other_generation(rng, slices[0], generation))
    return slices


def _other_generation(rng: Random, like: Json, generation: int) -> Json:
    return api.published(
        [api.device("gpu-0"), api.device("stale")],
        name=f"{like['metadata']['name']}-x",
        driver=like["spec"]["driver"],
        pool=like["spec"]["pool"]["name"],
        generation=generation + rng.choice((-1, -1, 1)),
        nodeName=rng.choice((api.NODE, api.NODE, "node-2")),
    )


def _selection(rng: Random, part: list[Json] | None) -> Json:
    kind = _many(rng, 18, 3, 3, 2, 1)
    if kind == 1:
        return {"allNodes": True}
    if kind == 2:
        return {"nodeSelector": _node_selector(rng)}
    if kind == 3 and part is not None:
        for index, one in enumerate(part):
            part[index] = {**one, **_own_selection(rng)}
        return {"perDeviceNodeSelection": True}
    if kind == 4:
        return {"nodeName": "node-2"}
    return {"nodeName": api.NODE}


def _own_selection(rng: Random) -> Json:
    return rng.choice(
        (
            {"nodeName": api.NODE},
            {"allNodes": True},
            {"nodeName": "node-2"},
            {"nodeSelector": _node_selector(rng)},
        )
    )


def _node_selector(rng: Random) -> Json:
    expressions = [
        {"key": "zone", "operator": "In", "values": ["a"]},
        {"key": "zone", "operator": "NotIn", "values": ["b", "c"]},
        {"key": "zone", "operator": "Exists"},
        {"key": "missing", "operator": "DoesNotExist"},
        {"key": "rank", "operator": "Gt", "values": [str(rng.randrange(8))]},
        {"key": "rank", "operator": "Lt", "values": [str(rng.randrange(8))]},
    ]
    if _likely(rng, 0.03):
        expressions = [
            {"key": "zone", "operator": "In"},
            {"key": "zone", "operator": "Like", "values": ["a"]},
            {"key": "rank", "operator": "Gt", "values": ["x"]},
            {"key": "-", "operator": "Exists"},
        ]
    term: Json = {"matchExpressions": rng.sample(expressions, 1 + _many(rng, 3, 1))}
    if _likely(rng, 0.2):
        operator = rng.choice(("In", "NotIn"))
        name = rng.choice((api.NODE, "node-2"))
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [name]}]
    terms = [term] if _likely(rng, 0.97) else [term, {}, term]
    return {"nodeSelectorTerms": terms}


def _device(rng: Random, index: int, counted: bool, shared: bool, binding: bool) -> Json:
    fields: Json = {"attributes": _attributes(rng)}
    if _likely(rng, 0.15):
        fields["taints"] = [_taint(rng) for _ in range(1 + _many(rng, 3, 1))]
    if shared and _likely(rng, 0.8):
        fields["allowMultipleAllocations"] = True
    if shared or _likely(rng, 0.4):
        fields["capacity"] = _capacity(rng, policies=shared)
    if counted and _likely(rng, 0.8):
        fields["consumesCounters"] = _consumes(rng)
    if binding and _likely(rng, 0.5):
        fields |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
    if _likely(rng, 0.05):
        fields["bindsToNode"] = True
    return api.device(f"gpu-{index}", **fields)


def _attributes(rng: Random) -> Json:
    found = {"model": api.attribute(rng.choice("AAB")), "numa": api.attribute(rng.randrange(2))}
    if _likely(rng, 0.3):
        found["version"] = api.attribute(rng.choice(("v1.0.0", "v1.0.1")))
    if _likely(rng, 0.3):
        found["gpu.example.com/nvlink"] = api.attribute(_likely(rng, 0.5))
    if _likely(rng, 0.02):
        del found[rng.choice(("model", "numa"))]
    if _likely(rng, 0.015):
        found["numa"] = api.attribute(rng.choice("01"))
    return found


def _taint(rng: Random) -> Json:
    effect = rng.choice(("NoSchedule", "NoSchedule", "NoExecute", "None", "Later"))
    taint = {"key": rng.choice(("health", "drain")), "effect": effect}
    if _likely(rng, 0.5):
        taint["value"] = rng.choice("xy")
    return taint


def _toleration(rng: Random) -> Json:
    toleration: Json = {}
    for name, values in (
        ("key", ("health", "drain")),
        ("effect", ("NoSchedule", "NoExecute")),
        ("operator", ("Exists", "Exists", "Equal", "Other")),
        ("value", ("x", "y")),
    ):
        if _likely(rng, 0.6):
            toleration[name] = rng.choice(values)
    if _likely(rng, 0.2):
        toleration["tolerationSeconds"] = rng.randrange(100)
    return toleration


def _capacity(rng: Random, *, policies: bool) -> Json:
    found: Json = {}
    names = ["memory", *rng.sample(("cores", "gpu.example.com/slots"), _many(rng, 6, 2, 1))]
    for name in names if _likely(rng, 0.9) else names[1:]:
        capacity: Json = {"value": rng.choice(("10", "8Gi", "16Gi", "40", "10k", "2500m"))}
        if policies and _likely(rng, 0.6):
            capacity["requestPolicy"] = _policy(rng)
        found[name] = capacity
    return found


def _policy(rng: Random) -> Json:
    policy: Json = {}
    if _likely(rng, 0.8):
        policy["default"] = rng.choice(_QUANTITIES)
    kind = rng.randrange(3)
    if kind == 1:
        policy["validValues"] = rng.sample(_QUANTITIES, 1 + rng.randrange(3))
    if kind == 2:
        valid: Json = {"min": rng.choice(("1", "2", "1Gi", "500m", "0.5Ki"))}
        if _likely(rng, 0.5):
            valid["max"] = rng.choice(("8", "8Gi", "9"))
        if _likely(rng, 0.6):
            valid["step"] = rng.choice(("1", "2", "1Gi", "1k", "3", "512Mi"))
        policy["validRange"] = valid
    return policy


def _counter_sets(rng: Random) -> list[Json]:
    return [
        {"name": name, "counters": api.counters(memory=rng.choice(("10", "20", "30")), cores="4")}
        for name in ("set-0", "set-0" if _likely(rng, 0.03) else "set-1")
    ]


def _consumes(rng: Random) -> list[Json]:
    names = rng.sample(("set-0", "set-1"), 1 + _many(rng, 4, 1))
    found = [api.consumes(name, memory=rng.choice(("5", "10", "15"))) for name in names]
    if _likely(rng, 0.3):
        found[0]["counters"] |= api.counters(cores=rng.choice(("1", "2500m")))
    if _likely(rng, 0.02):
        found[0]["counterSet"] = "dangling"
    if _likely(rng, 0.02):
        found[0]["counters"] |= api.counters(dangling="1")
    if _likely(rng, 0.02):
        found[0]["compatibilityGroups"] = ["mig"]
    return found


def _opaque(rng: Random, **fields: Any) -> Json:
    parameters = {"kind": "Sharing", "n": rng.randrange(3)}
    return {"opaque": {"driver": "gpu.example.com", "parameters": parameters}, **fields}


def _class(rng: Random, name: str) -> Json:
    selectors = [_expression(rng) for _ in range(_many(rng, 6, 2, 1))]
    config = [_opaque(rng) for _ in range(_many(rng, 5, 2, 1))]
    return api.device_class(name, selectors, config)


def _expression(rng: Random) -> str:
    return rng.choice(_WRONG_CEL if _likely(rng, 0.01) else _CEL)


def _wanted(rng: Random, *, prioritized: bool) -> Json:
    name = "missing" if _likely(rng, 0.004) else rng.choice(("gpu", "gpu", "other"))
    fields: Json = {"deviceClassName": name, "count": _many(rng, 0.3, 10, 4, 1, 0.5)}
    if _likely(rng, 0.15):
        fields["allocationMode"] = "All"
    elif _likely(rng, 0.02):
        fields["count"] = rng.choice((20, 32, 33, 2**40))
    elif _likely(rng, 0.01):
        fields["allocationMode"] = rng.choice(("", "Some"))
    if not prioritized and _likely(rng, 0.12):
        fields["adminAccess"] = _likely(rng, 0.8)
    if _likely(rng, 0.25):
        fields["tolerations"] = [_toleration(rng) for _ in range(1 + _many(rng, 2, 1))]
    if _likely(rng, 0.25):
        names = rng.sample(("memory", "memory", "cores", "gpu.example.com/slots"), 1 + _many(rng, 5, 1))
        asked = {name: rng.choice(_QUANTITIES) for name in names}
        if _likely(rng, 0.03):
            asked[names[0]] = rng.choice(("-1", "9999999999999999999", "9223372036854775807"))
        fields["capacity"] = {"requests": asked}
    selectors = [_expression(rng) for _ in range(_many(rng, 5, 3, 1))]
    return api.wanted(*selectors, **fields)


def _request(rng: Random, name: str) -> Json:
    if _likely(rng, 0.3):
        count = 1 + _many(rng, 1, 3, 2)
        return api.first_available(name, *(_wanted(rng, prioritized=True) for _ in range(count)))
    return {"name": name, "exactly": _wanted(rng, prioritized=False)}


def _claim(rng: Random, name: str) -> Json:
    requests = [_request(rng, f"r{index}") for index in range(_many(rng, 0.2, 8, 4, 2))]
    fields: Json = {}
    if _likely(rng, 0.4):
        fields["constraints"] = [_constraint(rng) for _ in range(1 + _many(rng, 4, 1))]
    if _likely(rng, 0.3):
        fields["config"] = [_opaque(rng, **_some_requests(rng)) for _ in range(1 + _many(rng, 2, 1))]
    return api.claim(*requests, name=name, **fields)


def _some_requests(rng: Random) -> Json:
    if _likely(rng, 0.4):
        return {}
    names = ("r0", "r0", "r1", "r0/s0", "r0/s1", "r1/s0", "r2")
    return {"requests": sorted({rng.choice(names) for _ in range(1 + rng.randrange(3))})}


def _constraint(rng: Random) -> Json:
    if _likely(rng, 0.01):
        return {"requests": []}
    names = ("numa", "model", "version", "nvlink", "missing")
    attribute = rng.choice(("gpu.example.com/", "gpu.example.com/", "nic.example.com/")) + rng.choice(names)
    kind = rng.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
    return {kind: attribute, **_some_requests(rng)}


def _allocated(rng: Random, slices: list[Json]) -> list[Json]:
    claims: list[Json] = []
    for one in slices:
        for device in one["spec"].get("devices", ()):
            if not _likely(rng, 0.12):
                continue
            fields: Json = {"driver": one["spec"]["driver"]}
            if _likely(rng, 0.1):
                fields["adminAccess"] = True
            if device.get("allowMultipleAllocations") and _likely(rng, 0.95):
                fields["shareID"] = f"{len(claims):08d}-0000-0000-0000-000000000000"
                taken = {name: rng.choice(("1", "2Gi", "3")) for name in device.get("capacity", ())}
                if taken and _likely(rng, 0.8):
                    fields["consumedCapacity"] = taken
            pool = one["spec"]["pool"]["name"]
            claims.append(api.held(device["name"], pool=pool, name=f"holder-{len(claims)}", **fields))
    if _likely(rng, 0.1):
        claims.append(api.held("gone", name="holder-gone"))
    return claims
