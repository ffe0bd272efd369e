"""Random allocation cases: small, so that both sides answer at once, but with every rule.

They leave out what makes the oracle panic or take too long: policies whose range has a step and
no minimum or a step of 0, negative counts, requests of no kind and class selectors without CEL (it panics on
all of them), and more than some dozen devices where they cannot all be allocated (it tries all
combinations).
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


def _many(chance: Random, *weights: float) -> int:
    """0, 1, 2, ... by weight."""
    return chance.choices(range(len(weights)), weights)[0]


def _likely(chance: Random, probability: float) -> bool:
    return chance.random() < probability


def random_case(chance: Random) -> Case:
    """One more case."""
    slices = _slices(chance)
    classes = [_class(chance, name) for name in ("gpu", "other")]
    claims = [_claim(chance, f"claim-{index}") for index in range(1 + _many(chance, 7, 2, 1))]
    return api.case(
        "random",
        node=api.node(zone=chance.choice("ab"), rank=str(chance.randrange(8))),
        slices=slices,
        classes=classes,
        allocated=_allocated(chance, slices),
        claims=claims,
    )


def _slices(chance: Random) -> list[Json]:
    slices: list[Json] = []
    for pool in range(1 + _many(chance, 5, 4, 2)):
        slices += _pool(chance, f"pool-{pool}", chance.choice(_DRIVERS))
    chance.shuffle(slices)
    return slices


def _pool(chance: Random, pool: str, driver: str) -> list[Json]:
    counted, shared = _likely(chance, 0.35), _likely(chance, 0.35)
    binding = _likely(chance, 0.1)
    listed = [
        _device(chance, index, counted, shared, binding)
        for index in range(_many(chance, 0.5, 2, 4, 4, 4, 3, 2))
    ]
    if listed and _likely(chance, 0.04):
        listed.append(dict(listed[0]))
    parts: list[list[Json] | None] = [listed]
    if len(listed) > 1 and _likely(chance, 0.3):
        parts = [listed[:1], listed[1:]]
    if counted:
        parts.append(None)
    count = len(parts) + (chance.choice((-1, 1)) if _likely(chance, 0.05) else 0)
    generation = chance.randrange(1, 3)
    order = chance.sample(range(9), len(parts))
    slices = []
    for index, part in zip(order, parts, strict=True):
        one = api.published(
            part,
            name=f"{pool}-{driver[:3]}-{index}",
            driver=driver,
            pool=pool,
            count=count,
            generation=generation,
            **_selection(chance, part),
        )
        if part is None:
            one["spec"]["sharedCounters"] = _counter_sets(chance)
        slices.append(one)
    if _likely(chance, 0.15):
        slices.append(_other_generation(chance, slices[0], generation))
    return slices


def _other_generation(chance: Random, like: Json, generation: int) -> Json:
    return api.published(
        [api.device("gpu-0"), api.device("stale")],
        name=f"{like['metadata']['name']}-x",
        driver=like["spec"]["driver"],
        pool=like["spec"]["pool"]["name"],
        generation=generation + chance.choice((-1, -1, 1)),
        nodeName=chance.choice((api.NODE, api.NODE, "node-2")),
    )


def _selection(chance: Random, part: list[Json] | None) -> Json:
    kind = _many(chance, 18, 3, 3, 2, 1)
    if kind == 1:
        return {"allNodes": True}
    if kind == 2:
        return {"nodeSelector": _node_selector(chance)}
    if kind == 3 and part is not None:
        for index, one in enumerate(part):
            part[index] = {**one, **_own_selection(chance)}
        return {"perDeviceNodeSelection": True}
    if kind == 4:
        return {"nodeName": "node-2"}
    return {"nodeName": api.NODE}


def _own_selection(chance: Random) -> Json:
    return chance.choice(
        (
            {"nodeName": api.NODE},
            {"allNodes": True},
            {"nodeName": "node-2"},
            {"nodeSelector": _node_selector(chance)},
        )
    )


def _node_selector(chance: Random) -> Json:
    expressions = [
        {"key": "zone", "operator": "In", "values": ["a"]},
        {"key": "zone", "operator": "NotIn", "values": ["b", "c"]},
        {"key": "zone", "operator": "Exists"},
        {"key": "missing", "operator": "DoesNotExist"},
        {"key": "rank", "operator": "Gt", "values": [str(chance.randrange(8))]},
        {"key": "rank", "operator": "Lt", "values": [str(chance.randrange(8))]},
    ]
    if _likely(chance, 0.03):
        expressions = [
            {"key": "zone", "operator": "In"},
            {"key": "zone", "operator": "Like", "values": ["a"]},
            {"key": "rank", "operator": "Gt", "values": ["x"]},
            {"key": "-", "operator": "Exists"},
        ]
    term: Json = {"matchExpressions": chance.sample(expressions, 1 + _many(chance, 3, 1))}
    if _likely(chance, 0.2):
        operator = chance.choice(("In", "NotIn"))
        name = chance.choice((api.NODE, "node-2"))
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [name]}]
    terms = [term] if _likely(chance, 0.97) else [term, {}, term]
    return {"nodeSelectorTerms": terms}


def _device(chance: Random, index: int, counted: bool, shared: bool, binding: bool) -> Json:
    fields: Json = {"attributes": _attributes(chance)}
    if _likely(chance, 0.15):
        fields["taints"] = [_taint(chance) for _ in range(1 + _many(chance, 3, 1))]
    if shared and _likely(chance, 0.8):
        fields["allowMultipleAllocations"] = True
    if shared or _likely(chance, 0.4):
        fields["capacity"] = _capacity(chance, policies=shared)
    if counted and _likely(chance, 0.8):
        fields["consumesCounters"] = _consumes(chance)
    if binding and _likely(chance, 0.5):
        fields |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
    if _likely(chance, 0.05):
        fields["bindsToNode"] = True
    return api.device(f"gpu-{index}", **fields)


def _attributes(chance: Random) -> Json:
    found = {"model": api.attribute(chance.choice("AAB")), "numa": api.attribute(chance.randrange(2))}
    if _likely(chance, 0.3):
        found["version"] = api.attribute(chance.choice(("v1.0.0", "v1.0.1")))
    if _likely(chance, 0.3):
        found["gpu.example.com/nvlink"] = api.attribute(_likely(chance, 0.5))
    if _likely(chance, 0.02):
        del found[chance.choice(("model", "numa"))]
    if _likely(chance, 0.015):
        found["numa"] = api.attribute(chance.choice("01"))
    return found


def _taint(chance: Random) -> Json:
    effect = chance.choice(("NoSchedule", "NoSchedule", "NoExecute", "None", "Later"))
    taint = {"key": chance.choice(("health", "drain")), "effect": effect}
    if _likely(chance, 0.5):
        taint["value"] = chance.choice("xy")
    return taint


def _toleration(chance: Random) -> Json:
    toleration: Json = {}
    for name, values in (
        ("key", ("health", "drain")),
        ("effect", ("NoSchedule", "NoExecute")),
        ("operator", ("Exists", "Exists", "Equal", "Other")),
        ("value", ("x", "y")),
    ):
        if _likely(chance, 0.6):
            toleration[name] = chance.choice(values)
    if _likely(chance, 0.2):
        toleration["tolerationSeconds"] = chance.randrange(100)
    return toleration


def _capacity(chance: Random, *, policies: bool) -> Json:
    found: Json = {}
    names = ["memory", *chance.sample(("cores", "gpu.example.com/slots"), _many(chance, 6, 2, 1))]
    for name in names if _likely(chance, 0.9) else names[1:]:
        capacity: Json = {"value": chance.choice(("10", "8Gi", "16Gi", "40", "10k", "2500m"))}
        if policies and _likely(chance, 0.6):
            capacity["requestPolicy"] = _policy(chance)
        found[name] = capacity
    return found


def _policy(chance: Random) -> Json:
    policy: Json = {}
    if _likely(chance, 0.8):
        policy["default"] = chance.choice(_QUANTITIES)
    kind = chance.randrange(3)
    if kind == 1:
        policy["validValues"] = chance.sample(_QUANTITIES, 1 + chance.randrange(3))
    if kind == 2:
        valid: Json = {"min": chance.choice(("1", "2", "1Gi", "500m", "0.5Ki"))}
        if _likely(chance, 0.5):
            valid["max"] = chance.choice(("8", "8Gi", "9"))
        if _likely(chance, 0.6):
            valid["step"] = chance.choice(("1", "2", "1Gi", "1k", "3", "512Mi"))
        policy["validRange"] = valid
    return policy


def _counter_sets(chance: Random) -> list[Json]:
    return [
        {"name": name, "counters": api.counters(memory=chance.choice(("10", "20", "30")), cores="4")}
        for name in ("set-0", "set-0" if _likely(chance, 0.03) else "set-1")
    ]


def _consumes(chance: Random) -> list[Json]:
    names = chance.sample(("set-0", "set-1"), 1 + _many(chance, 4, 1))
    found = [api.consumes(name, memory=chance.choice(("5", "10", "15"))) for name in names]
    if _likely(chance, 0.3):
        found[0]["counters"] |= api.counters(cores=chance.choice(("1", "2500m")))
    if _likely(chance, 0.02):
        found[0]["counterSet"] = "dangling"
    if _likely(chance, 0.02):
        found[0]["counters"] |= api.counters(dangling="1")
    if _likely(chance, 0.02):
        found[0]["compatibilityGroups"] = ["mig"]
    return found


def _opaque(chance: Random, **fields: Any) -> Json:
    parameters = {"kind": "Sharing", "n": chance.randrange(3)}
    return {"opaque": {"driver": "gpu.example.com", "parameters": parameters}, **fields}


def _class(chance: Random, name: str) -> Json:
    selectors = [_expression(chance) for _ in range(_many(chance, 6, 2, 1))]
    config = [_opaque(chance) for _ in range(_many(chance, 5, 2, 1))]
    return api.device_class(name, selectors, config)


def _expression(chance: Random) -> str:
    return chance.choice(_WRONG_CEL if _likely(chance, 0.01) else _CEL)


def _wanted(chance: Random, *, prioritized: bool) -> Json:
    name = "missing" if _likely(chance, 0.004) else chance.choice(("gpu", "gpu", "other"))
    fields: Json = {"deviceClassName": name, "count": _many(chance, 0.3, 10, 4, 1, 0.5)}
    if _likely(chance, 0.15):
        fields["allocationMode"] = "All"
    elif _likely(chance, 0.02):
        fields["count"] = chance.choice((20, 32, 33, 2**40))
    elif _likely(chance, 0.01):
        fields["allocationMode"] = chance.choice(("", "Some"))
    if not prioritized and _likely(chance, 0.12):
        fields["adminAccess"] = _likely(chance, 0.8)
    if _likely(chance, 0.25):
        fields["tolerations"] = [_toleration(chance) for _ in range(1 + _many(chance, 2, 1))]
    if _likely(chance, 0.25):
        names = chance.sample(("memory", "memory", "cores", "gpu.example.com/slots"), 1 + _many(chance, 5, 1))
        asked = {name: chance.choice(_QUANTITIES) for name in names}
        if _likely(chance, 0.03):
            asked[names[0]] = chance.choice(("-1", "9999999999999999999", "9223372036854775807"))
        fields["capacity"] = {"requests": asked}
    selectors = [_expression(chance) for _ in range(_many(chance, 5, 3, 1))]
    return api.wanted(*selectors, **fields)


def _request(chance: Random, name: str) -> Json:
    if _likely(chance, 0.3):
        count = 1 + _many(chance, 1, 3, 2)
        return api.first_available(name, *(_wanted(chance, prioritized=True) for _ in range(count)))
    return {"name": name, "exactly": _wanted(chance, prioritized=False)}


def _claim(chance: Random, name: str) -> Json:
    requests = [_request(chance, f"r{index}") for index in range(_many(chance, 0.2, 8, 4, 2))]
    fields: Json = {}
    if _likely(chance, 0.4):
        fields["constraints"] = [_constraint(chance) for _ in range(1 + _many(chance, 4, 1))]
    if _likely(chance, 0.3):
        fields["config"] = [_opaque(chance, **_some_requests(chance)) for _ in range(1 + _many(chance, 2, 1))]
    return api.claim(*requests, name=name, **fields)


def _some_requests(chance: Random) -> Json:
    if _likely(chance, 0.4):
        return {}
    names = ("r0", "r0", "r1", "r0/s0", "r0/s1", "r1/s0", "r2")
    return {"requests": sorted({chance.choice(names) for _ in range(1 + chance.randrange(3))})}


def _constraint(chance: Random) -> Json:
    if _likely(chance, 0.01):
        return {"requests": []}
    names = ("numa", "model", "version", "nvlink", "missing")
    attribute = chance.choice(("gpu.example.com/", "gpu.example.com/", "nic.example.com/")) + chance.choice(
        names
    )
    kind = chance.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
    return {kind: attribute, **_some_requests(chance)}


def _allocated(chance: Random, slices: list[Json]) -> list[Json]:
    claims: list[Json] = []
    for one in slices:
        for device in one["spec"].get("devices", ()):
            if not _likely(chance, 0.12):
                continue
            fields: Json = {"driver": one["spec"]["driver"]}
            if _likely(chance, 0.1):
                fields["adminAccess"] = True
            if device.get("allowMultipleAllocations") and _likely(chance, 0.95):
                fields["shareID"] = f"{len(claims):08d}-0000-0000-0000-000000000000"
                taken = {name: chance.choice(("1", "2Gi", "3")) for name in device.get("capacity", ())}
                if taken and _likely(chance, 0.8):
                    fields["consumedCapacity"] = taken
            pool = one["spec"]["pool"]["name"]
            claims.append(api.held(device["name"], pool=pool, name=f"holder-{len(claims)}", **fields))
    if _likely(chance, 0.1):
        claims.append(api.held("gone", name="holder-gone"))
    return claims
