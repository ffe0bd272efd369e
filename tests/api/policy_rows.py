"""Writes that the admission policies judge, and what they say: for Kubernetes, and for our own CEL."""

import copy
from dataclasses import dataclass
from typing import Any

from tests.api.written import event_of, slice_of
from tests.clusters import Object

DRIVER, OTHER_DRIVER = "gpu.nvidia.com", "nic.example.com"
OWN, ELSEWHERE = "node-0", "elsewhere"
FINALIZER = "resource.kubernetes.io/delete-protection"
HUGE = "1e2147483647"
"""With it the scheduler calculates for ever, and places no pod of anybody."""

CONTROLLER, PLUGIN = "gpu-dra-controller", "gpu-dra-kubeletplugin"
NODELESS = " without a node"
"""Behind the name of an account: its token is not bound to a pod of a node."""
TENANT, ADMIN = "tenant", "admin"


@dataclass(frozen=True, slots=True)
class Row:
    """A write: who, what is there before (None: nothing), what is written (None: it is deleted).

    ``said`` is a part of the refusal, empty where the write is allowed. ``subresource`` may be ``status``.
    """

    name: str
    who: str
    new: Object | None
    said: str = ""
    old: Object | None = None
    subresource: str = ""


def result(node: str, driver: str = DRIVER) -> Object:
    """An allocated device."""
    return {"request": "r", "driver": driver, "pool": f"{node}/{driver}", "device": "gpu-0"}


def entry(node: str, driver: str = DRIVER) -> Object:
    """What a driver says of the device of ``result``."""
    allocated = {key: value for key, value in result(node, driver).items() if key != "request"}
    return {**allocated, "data": {"uuid": "MIG-of-the-thief"}}


def claim(*results: Object, devices: tuple[Object, ...] = (), finalizers: tuple[str, ...] = ()) -> Object:
    """A claim with these allocated devices, and what is said of them."""
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    made = asking(request)
    made["metadata"]["finalizers"] = list(finalizers)
    if results:
        term = {"key": "metadata.name", "operator": "In", "values": [results[0]["pool"].split("/")[0]]}
        selector = {"nodeSelectorTerms": [{"matchFields": [term]}]}
        allocation = {"devices": {"results": list(results)}, "nodeSelector": selector}
        made["status"] = {"allocation": allocation, **({"devices": list(devices)} if devices else {})}
    return made


def asking(request: Object) -> Object:
    """A claim with one request."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "one"},
        "spec": {"devices": {"requests": [{"name": "r", **request}]}},
    }


def _with(made: Object, **spec: Any) -> Object:
    return {**made, "spec": {**made["spec"], **spec}}


def _pool(name: str, generation: int = 1) -> Object:
    return {"name": name, "generation": generation, "resourceSliceCount": 1}


def _with_device(device: Object) -> Object:
    made = slice_of(OWN)
    made["spec"]["devices"].append({"name": "gpu-1", **device})
    return made


def _slices() -> tuple[Row, ...]:
    later = _with(slice_of(OWN), pool=_pool(f"{OWN}/{DRIVER}", 2))
    foreign = slice_of(ELSEWHERE)
    counters = [{"name": "gpu", "counters": {"memory": {"value": HUGE}}}]
    return (
        Row("own slice", CONTROLLER, slice_of(OWN)),
        Row("own slice, changed", CONTROLLER, later, old=slice_of(OWN)),
        Row("own slice, deleted", CONTROLLER, None, old=slice_of(OWN)),
        Row("slice of another node", CONTROLLER, foreign, f"the driver on node {OWN} may write only slices"),
        Row(
            "slice of all nodes", CONTROLLER, slice_of(None), "may write only slices with this spec.nodeName"
        ),
        Row("foreign slice, changed", CONTROLLER, foreign, "may write only slices", old=foreign),
        Row("foreign slice, deleted", CONTROLLER, None, "may change or delete only slices", old=foreign),
        Row("slice of an admin", ADMIN, foreign),
        Row("slice without a node in the token", CONTROLLER + NODELESS, slice_of(OWN), "names no node"),
        Row(
            "slice of another driver",
            CONTROLLER,
            _with(slice_of(OWN), driver=OTHER_DRIVER),
            'only slices with spec.driver "gpu.nvidia.com"',
        ),
        Row(
            "slice of another pool",
            CONTROLLER,
            _with(slice_of(OWN), pool=_pool(f"{ELSEWHERE}/{DRIVER}")),
            f"only slices of the pool {OWN}/gpu.nvidia.com",
        ),
        Row(
            "shared counters without end",
            CONTROLLER,
            {
                **slice_of(OWN),
                "spec": _without(_with(slice_of(OWN), sharedCounters=counters)["spec"], "devices"),
            },
            "a counter is not",
        ),
    )


def _without(fields: Object, name: str) -> Object:
    return {key: value for key, value in fields.items() if key != name}


TYPED = {"type": {"string": "gpu"}}
_COUNTED = [{"counterSet": "gpu", "counters": {"memory": {"value": HUGE}}}]
_POLICED = {"value": "1", "requestPolicy": {"default": "1m", "validValues": ["1m"]}}
_DEVICES: tuple[tuple[Object, str], ...] = (
    ({"attributes": TYPED, "capacity": {"memory": {"value": "80Gi"}}}, ""),
    ({}, "needs the attribute type"),
    ({"attributes": {}}, "needs the attribute type"),
    ({"attributes": {"uuid": {"string": "GPU-1"}}}, "needs the attribute type"),
    ({"attributes": {"type": {"int": 1}}}, "needs the attribute type"),
    ({"attributes": {"type": {"string": "fpga"}}}, "needs the attribute type"),
    ({"attributes": TYPED | {"profile": {"int": 1}}}, "has a different type"),
    ({"attributes": TYPED | {"driverVersion": {"string": "580"}}}, "has a different type"),
    ({"attributes": TYPED | {f"{DRIVER}/profile": {"int": 1}}}, "without this domain"),
    ({"attributes": TYPED, "capacity": {f"{DRIVER}/memory": {"value": "1"}}}, "without this domain"),
    ({"attributes": TYPED, "capacity": {"memory": {"value": HUGE}}}, "a capacity of a device"),
    ({"attributes": TYPED, "consumesCounters": _COUNTED}, "a counter is not"),
    (
        {"attributes": TYPED, "allowMultipleAllocations": True, "capacity": {"memory": _POLICED}},
        "a capacity of a device",
    ),
)
"""The scheduler would give up on every pod whose class reads what is not there, or hang, on all nodes."""


def _statuses() -> tuple[Row, ...]:
    own, others = claim(result(OWN)), (entry(OWN, OTHER_DRIVER), entry("fabric"))
    results = (result(OWN), result(OWN, OTHER_DRIVER), result("fabric"))
    shared = claim(*results, devices=others)
    told = claim(result(OWN), devices=(entry(OWN),))
    reserved = copy.deepcopy(own)
    reserved["status"]["reservedFor"] = [{"resource": "pods", "name": "p", "uid": "u"}]
    foreign = claim(result(ELSEWHERE), devices=(entry(ELSEWHERE),))
    of_node = "may write the status only of claims that have a device of this node"
    only_own = f"only entries of status.devices with driver gpu.nvidia.com and pool {OWN}"
    changed = others[0] | {"data": {"a": 1}}
    return tuple(
        Row(name, who, new, said, old, "status")
        for name, who, old, new, said in (
            ("own device", PLUGIN, own, told, ""),
            ("own device beside others", PLUGIN, shared, claim(*results, devices=(*others, entry(OWN))), ""),
            ("own device without a node in the token", PLUGIN + NODELESS, own, told, "names no node"),
            ("foreign claim", PLUGIN, foreign, claim(result(ELSEWHERE)), of_node),
            ("claim that waits", PLUGIN, claim(), told, of_node),
            ("deallocated", PLUGIN, own, claim(), "only status.devices"),
            ("reserved", PLUGIN, own, reserved, "only status.devices"),
            ("entries of others, gone", PLUGIN, shared, claim(*results), only_own),
            ("entry of a driver, gone", PLUGIN, shared, claim(*results, devices=others[1:]), only_own),
            ("entry of a pool, gone", PLUGIN, shared, claim(*results, devices=others[:1]), only_own),
            ("entry changed", PLUGIN, shared, claim(*results, devices=(changed, others[1])), only_own),
        )
    )


def _events() -> tuple[Row, ...]:
    own, said = event_of(OWN), "may write only events that it reports itself"
    elsewhere, kubelets = event_of(ELSEWHERE), event_of(OWN, "kubelet")
    again = {**own, "count": 2}
    return (
        Row("own event", PLUGIN, own),
        Row("own event, again", PLUGIN, again, old=own),
        Row("event without a node in the token", PLUGIN + NODELESS, own, "names no node"),
        Row("event of another node", PLUGIN, elsewhere, said),
        Row("event of the kubelet", PLUGIN, kubelets, said),
        Row("own event as another node's", PLUGIN, {**own, "reportingInstance": ELSEWHERE}, said, old=own),
        Row("event of another node, again", PLUGIN, {**elsewhere, "count": 2}, said, old=elsewhere),
        Row("event of the kubelet, again", PLUGIN, {**kubelets, "count": 2}, said, old=kubelets),
    )


def _claims() -> tuple[Row, ...]:
    kept = (FINALIZER, "example.com/own")
    used, said = claim(result(OWN), finalizers=(FINALIZER,)), "the claim has a GPU"
    others = result(OWN, OTHER_DRIVER)
    amounts = {"deviceClassName": "gpu.nvidia.com", "capacity": {"requests": {"memory": HUGE}}}
    large = {**amounts, "capacity": {"requests": {"memory": "1.5E"}}}
    looks, exponent = {"deviceClassName": "monitoring"}, "an amount with an exponent"
    return (
        Row("finalizer", TENANT, claim(result(OWN)), said, old=used),
        Row("finalizer, for another", TENANT, claim(result(OWN), finalizers=kept[1:]), said, old=used),
        Row("finalizer kept", TENANT, claim(result(OWN), finalizers=kept), old=used),
        Row("finalizer, by who binds", ADMIN, claim(result(OWN)), old=used),
        Row("finalizer of a claim that waits", TENANT, claim(), old=claim(finalizers=(FINALIZER,))),
        Row("finalizer of others", TENANT, claim(others), old=claim(others, finalizers=(FINALIZER,))),
        Row("amount", TENANT, asking({"exactly": amounts}), exponent),
        Row("amount, else", TENANT, asking({"firstAvailable": [{"name": "a", **amounts}]}), exponent),
        Row("large amount", TENANT, asking({"exactly": large})),
        Row("monitoring", TENANT, asking({"exactly": looks}), "needs adminAccess: true"),
        Row(
            "three to monitor",
            TENANT,
            asking({"exactly": {**looks, "adminAccess": False, "count": 3}}),
            "needs adminAccess: true",
        ),
        Row(
            "monitoring, else",
            TENANT,
            asking({"firstAvailable": [{"name": "one", **looks}]}),
            "needs adminAccess: true",
        ),
        Row("another class", TENANT, asking({"exactly": {"deviceClassName": "large"}})),
    )


ROWS = (
    *_slices(),
    *(Row(f"device {n}", CONTROLLER, _with_device(one), said) for n, (one, said) in enumerate(_DEVICES)),
    *_statuses(),
    *_events(),
    *_claims(),
)
