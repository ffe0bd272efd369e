"""Situations of GPUs that are offered in several forms, or whose shares are not limited."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

from tests.clusters import Object, plan_inventory
from tests.deviceclasses.shipped_classes import DEFAULT
from tests.gpuctl.explain.objects import Later, claim, of_claim
from tests.gpus import parse_config
from tools.conformance.nodes.mig_nodes import inventory

GPU = "gpu-0000-1b-00-0"
OURS = 'device.attributes["gpu.nvidia.com"]'
CLASSES = tuple(
    {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
    for name, expression in (
        ("whole", f'{OURS}.type == "gpu"'),
        ("small", f'{OURS}.type == "mig" && {OURS}.profile == "1g.10gb"'),
        ("half", f'{OURS}.type == "mig" && {OURS}.profile == "3g.40gb"'),
        ("every", "true"),
        ("media", f'{OURS}.type == "mig" && {OURS}.profile == "1g.10gb+me"'),
    )
)
FORMS = "mig: {dynamic: {profiles: [1g, 1g+me, 3g]}}"
SHARED = "mig: {dynamic: {profiles: [3g]}}, shared: {strategy: TimeSlicing, shares: 2}"


@cache
def published(node: str, rules: str, machine: str = "hgx-h100", **changes: Any) -> tuple[Object, ...]:
    """What a node publishes under these rules."""
    found = replace(inventory(machine, "delivered"), **changes)
    return plan_inventory(found, node, parse_config(f"{{version: v1, rules: [{rules}]}}", "test")).slices


def first_gpu(rule: str) -> tuple[Object, ...]:
    """One GPU is offered in these forms, the others are hidden."""
    return published("node-a", f"{{when: gpu.index == 0, {rule}}}, {{offer: hidden}}")


def asking(device_class: str, *held: str, name: str = "mine", share: str = "", **exactly: Any) -> Object:
    """A claim of this class, which may have devices or a share."""
    own = {"shareID": share, "consumedCapacity": {"memory": "0", "shares": "1"}} if share else {}
    pool = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node-a/gpu.nvidia.com", **own}
    results = [{**pool, "device": device} for device in held]
    made = claim(name)
    made["status"] = {"allocation": {"devices": {"results": results}}} if held else {}
    made["spec"]["devices"]["requests"][0]["exactly"] |= {"deviceClassName": device_class, **exactly}
    return made


def in_forms(
    wanted: str, *holders: tuple[str, str, str], rule: str = FORMS, share: bool = False, **exactly: Any
) -> Later:
    """A claim of this class waits for others: their names, classes and the ends of their devices' names."""
    others = tuple(
        asking(device_class, f"{GPU}{end}", name=name, share=str(number + 1) if share else "")
        for number, (name, device_class, end) in enumerate(holders)
    )
    return of_claim(asking(wanted, **exactly), slices=first_gpu(rule), classes=CLASSES, claims=others)


def of_another_driver() -> Later:
    counters = {"memory": {"value": "1"}}
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 2}
    base = {"driver": "other.example.com", "nodeName": "node-a", "pool": pool}
    consumes = [{"counterSet": "set", "counters": counters}]
    devices = [{"name": name, "consumesCounters": consumes} for name in ("one", "two")]
    sets = {**base, "sharedCounters": [{"name": "set", "counters": counters}]}
    both = (
        {"metadata": {"name": "a"}, "spec": sets},
        {"metadata": {"name": "b"}, "spec": {**base, "devices": devices}},
    )
    holder = asking("every", "one", name="theirs")
    holder["status"]["allocation"]["devices"]["results"][0] |= {"driver": "other.example.com", "pool": "p"}
    return of_claim(asking("every"), slices=both, classes=CLASSES, claims=(holder,))


CUT = ("a", "small", "-mig-1g-10gb-0")
SHARES = [(name, "whole", "-ts-2") for name in ("a", "b")]
SMALL = [(f"c{start}", "small", f"-mig-1g-10gb-{start}") for start in range(4)]

COUNTERS: Mapping[str, Later] = {
    "a whole GPU that is cut": in_forms(
        "whole", ("b", "small", "-mig-1g-10gb-0"), ("a", "small", "-mig-3g-40gb-4")
    ),
    "partitions of a GPU that is held as a whole": in_forms("small", ("all", "whole", "")),
    "partitions of a GPU that is shared": in_forms("half", *SHARES, rule=SHARED, share=True),
    "one partition excludes several": in_forms("small", *SMALL, ("big", "half", "-mig-3g-40gb-4")),
    "an engine ran out": in_forms("media", ("video", "media", "-mig-1g-10gb-me-0")),
    "admin access to a GPU that is cut": in_forms("whole", CUT, adminAccess=True),
    "admin access to a GPU that is held": in_forms("whole", ("all", "whole", ""), adminAccess=True),
    "admin access to a free GPU": in_forms("whole", adminAccess=True),
    "admin access to all forms at once": in_forms("every", adminAccess=True, allocationMode="All"),
    "counters of another driver": of_another_driver(),
}

SLICED = "shared: {strategy: TimeSlicing, shares: 4}"
on_l4 = partial(published, machine="l4-quad")


def on_nodes(device_class: str, *nodes: tuple[Object, ...]) -> Later:
    """A claim of a class that the driver brings, on nodes that publish these slices."""
    slices = tuple(one for some in nodes for one in some)
    names = dict.fromkeys(one["spec"]["nodeName"] for one in slices)
    found = tuple({"metadata": {"name": name, "labels": {}}, "spec": {}} for name in names)
    return of_claim(asking(device_class), nodes=found, slices=slices, classes=tuple(DEFAULT.values()))


OLD = published("old", f"{{{SLICED}}}", "a30-quad")
ON_MIG = published("n", f"{{mig: {{layout: all-1g}}, {SLICED}}}")
NO_CGROUP_V2 = [on_l4(f"n{number}", f"{{{SLICED}}}", cgroup_v2=False) for number in range(5)]

LIMITS: Mapping[str, Later] = {
    "an old NVIDIA driver": on_nodes("shared-memory", OLD),
    "cgroup v1": on_nodes("shared-memory", NO_CGROUP_V2[0]),
    "cgroup v1 on five nodes": on_nodes("shared-memory", *NO_CGROUP_V2),
    "the configuration forbids them": on_nodes(
        "shared-memory", on_l4("n", f"{{memoryLimits: false, {SLICED}}}")
    ),
    "partitions": on_nodes("shared-memory", ON_MIG),
    "another node serves it": on_nodes("shared-memory", OLD, on_l4("new", f"{{{SLICED}}}")),
    "nobody insists on them": on_nodes("shared-mps", OLD),
    "MPS enforces its own": on_nodes(
        "shared-memory", published("mps", "{shared: {strategy: MPS, shares: 4}}", "a30-quad")
    ),
}
