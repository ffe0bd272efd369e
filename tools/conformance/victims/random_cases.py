"""Full nodes as cases: devices that running pods hold, and claims that do not fit beside them.

Half of the nodes have random devices, the others publish what the driver does for a shipped machine: MIG
partitions or shares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator
from tools.conformance.allocation import objects as api
from tools.conformance.allocation.objects import Json
from tools.conformance.area import Case
from tools.conformance.nodes import mig_area, mig_nodes, shares_area

NAMESPACE = "ns"
_PRIORITIES = (0, 0, 0, 1, 5, -3, 50)
_SELECTORS = (
    "device.attributes['gpu.example.com'].numa == 1",
    "device.allowMultipleAllocations == true",
    "true",
)
_MACHINES = ("hgx-h100", "a30-quad")

Asking = Callable[[Random, str], Json]


def random_case(rng: Random) -> Case:
    """A node that is nearly full, its pods, and claims of a pod of a higher priority."""
    slices, classes, asking = rng.choice((_random_node, _random_node, _mig_node, _shared_node))(rng)
    most = rng.choice((4, 6, 8, 8, 40))
    held = _filled(rng, slices, classes, asking if most <= 8 else _small(asking), most)
    claims, pods = _with_users(rng, held)
    for _ in range(4):
        wanted = [asking(rng, f"wanted-{n}") for n in range(rng.choice((1, 1, 2)))]
        if len(wanted) == 2 and rng.random() < 0.4:
            wanted[1] = {**wanted[0], "metadata": wanted[1]["metadata"]}
        if _fit(Allocator(slices, classes, []), wanted):
            break
    return victims_case("random", slices, classes, claims, pods, _budgets(rng), wanted, rng.choice((5, 1000)))


def victims_case(
    name: str,
    slices: Sequence[Json],
    classes: Sequence[Json],
    claims: Sequence[Json],
    pods: Sequence[Json],
    budgets: Sequence[Json],
    wanted: Sequence[Json],
    priority: int = 1000,
) -> Case:
    """A case: who has to go for the wanted claims of a pod with this priority."""
    return {
        "op": "victims",
        "name": name,
        "node": api.node(),
        "slices": list(slices),
        "classes": list(classes),
        "claims": list(claims),
        "pods": list(pods),
        "budgets": list(budgets),
        "wanted": list(wanted),
        "priority": priority,
    }


def pod(name: str, priority: int = 0, start_day: int = 1, app: str = "a") -> Json:
    """A running pod of the node."""
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": name, "labels": {"app": app}},
        "spec": {"nodeName": api.NODE, "priority": priority, "containers": []},
        "status": {
            "phase": "Running",
            "startTime": f"2026-01-{start_day:02}T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def used_by(claim: Json, *pods: Json) -> Json:
    """An allocated claim that these pods use."""
    names = [one["metadata"]["name"] for one in pods]
    users = [{"resource": "pods", "name": name, "uid": name} for name in names]
    return {**claim, "status": {**claim["status"], "reservedFor": users}}


def budget(app: str, allowed: int) -> Json:
    """A budget that allows so many of the app's pods to be evicted now."""
    return {
        "metadata": {"name": app, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    }


def _with_users(rng: Random, held: Sequence[Json]) -> tuple[list[Json], list[Json]]:
    """The claims with pods that use them: mostly one each, some share a claim, and some have two."""
    claims, pods = [], list[Json]()
    for one in held:
        if pods and rng.random() < 0.15:
            users = [rng.choice(pods)]
        else:
            users = [
                pod(f"p{len(pods) + n}", rng.choice(_PRIORITIES), rng.randint(1, 28), rng.choice("abc"))
                for n in range(rng.choice((1, 1, 1, 1, 1, 2)))
            ]
            pods += users
        claims.append(used_by(one, *users))
    return claims, pods


def _budgets(rng: Random) -> list[Json]:
    return [budget(app, rng.randrange(3)) for app in "ab" if rng.random() < 0.4]


def _filled(
    rng: Random, slices: Sequence[Json], classes: Sequence[Json], asking: Asking, most: int
) -> list[Json]:
    """Claims that were allocated one after the other until several did not fit."""
    allocator, held, failed = Allocator(slices, classes, []), list[Json](), 0
    while len(held) < most and failed < 12:
        claim = asking(rng, f"held-{len(held)}")
        found = _fit(allocator, [claim])
        if not found or not found[0]["devices"].get("results"):
            failed += 1
            continue
        held.append({**claim, "status": {"allocation": mig_area.with_share_ids(rng, found[0])}})
        allocator.assume(held[-1])
    return held


def _fit(allocator: Allocator, claims: Sequence[Json]) -> list[Json] | None:
    try:
        return allocator.allocate(api.node(), claims)
    except AllocationFailed:
        return None


def _small(asking: Asking) -> Asking:
    """Claims with one device each, with few shares of a shared one, so that a node has many."""

    def small(rng: Random, name: str) -> Json:
        request = asking(rng, name)["spec"]["devices"]["requests"][0]
        if "exactly" in request:
            exactly = {**request["exactly"], "count": 1, "allocationMode": "ExactCount"}
            if "shares" in exactly.get("capacity", {}).get("requests", {}):
                exactly["capacity"] = {"requests": {"shares": "1"}}
            request = {**request, "exactly": exactly}
        return api.claim(request, name=name)

    return small


def _mig_node(rng: Random) -> tuple[list[Json], list[Json], Asking]:
    rule = f"mig: {rng.choice(('dynamic', 'dynamic', 'static'))}"
    state = rng.choice(mig_nodes.STATES)
    offered = mig_nodes.offers(rng.choice(_MACHINES), mig_nodes.one_rule(rule), state, rng.randint(1, 2))
    kinds = sorted(set(map(mig_area.kind_of, offered.devices))) or ["true"]
    return mig_nodes.slices(offered), mig_area.CLASSES, lambda r, name: mig_area.random_claim(r, name, kinds)


def _shared_node(rng: Random) -> tuple[list[Json], list[Json], Asking]:
    rule = mig_nodes.one_rule(shares_area.random_rule(rng))
    offered = mig_nodes.offers(rng.choice(_MACHINES), rule, "delivered", rng.randint(1, 2))
    kinds = sorted(set(map(shares_area.kind_of, offered.devices))) or ["true"]
    return (
        mig_nodes.slices(offered),
        mig_area.CLASSES,
        lambda r, name: shares_area.random_claim(r, name, kinds),
    )


def _random_node(rng: Random) -> tuple[list[Json], list[Json], Asking]:
    slices = [one for n in range(rng.choice((1, 1, 2))) for one in _pool(rng, f"pool-{n}")]
    return slices, [api.device_class()], _claim


def _pool(rng: Random, name: str) -> list[Json]:
    counted, shared = rng.random() < 0.5, rng.random() < 0.5
    listed = [_device(rng, f"gpu-{n}", counted, shared) for n in range(rng.randint(2, 5))]
    if not counted:
        return [api.published(listed, name=name, pool=name)]
    slots = {f"s{n}": "1" for n in range(4)}
    sets = [{"name": f"set-{n}", "counters": api.counters(memory="8", **slots)} for n in range(2)]
    return [
        api.published(listed, name=f"{name}-a", pool=name, count=2),
        api.published(None, name=f"{name}-b", pool=name, count=2, sharedCounters=sets),
    ]


def _device(rng: Random, name: str, counted: bool, shared: bool) -> Json:
    fields: Json = {"attributes": api.attributes(numa=rng.randrange(2))}
    if rng.random() < 0.08:
        fields["taints"] = [{"key": "health", "effect": "NoSchedule"}]
    if counted:
        first = rng.randrange(4)
        slots = {f"s{n}": "1" for n in range(first, rng.randint(first, 3) + 1)}
        amounts = {"memory": rng.choice("1234"), **(slots if rng.random() < 0.6 else {})}
        fields["consumesCounters"] = [api.consumes(f"set-{rng.randrange(2)}", **amounts)]
    if shared and rng.random() < 0.85:
        fields["allowMultipleAllocations"] = True
    if shared or rng.random() < 0.5:
        policy = {"requestPolicy": {"default": rng.choice("123")}} if rng.random() < 0.8 else {}
        fields["capacity"] = {"memory": {"value": rng.choice(("6", "10")), **policy}}
        if rng.random() < 0.4:
            fields["capacity"]["cores"] = {"value": "4", "requestPolicy": {"default": "1"}}
    return api.device(name, **fields)


def _claim(rng: Random, name: str) -> Json:
    requests = [_request(rng, f"r{n}") for n in range(rng.choice((1, 1, 2)))]
    if rng.random() < 0.3:
        rule = rng.choice(("matchAttribute", "distinctAttribute"))
        return api.claim(*requests, name=name, constraints=[{rule: "gpu.example.com/numa", "requests": []}])
    return api.claim(*requests, name=name)


def _request(rng: Random, name: str) -> Json:
    fields: Json = {"count": rng.choice((1, 1, 1, 2, 3))}
    if rng.random() < 0.5:
        fields["capacity"] = {"requests": {"memory": rng.choice("1235")}}
    if rng.random() < 0.05:
        fields["allocationMode"] = "All"
    selectors = (rng.choice(_SELECTORS),) if rng.random() < 0.4 else ()
    if rng.random() < 0.15:
        return api.first_available(name, api.wanted(*selectors, **fields), api.wanted())
    if rng.random() < 0.05:
        fields["adminAccess"] = True
    return api.exactly(name, *selectors, **fields)
