"""Karpenter's own allocator says of a planned node what Kubernetes' allocator says of the real one.

Karpenter judges what ``gpuctl plan -o karpenter`` prints. Where it decides otherwise than Kubernetes, what it
passes over has to explain its answer, down to the devices.
"""

import copy
import json
import subprocess
from collections import defaultdict
from contextlib import suppress
from functools import cache

import pytest

from tests.clusters import (
    AllocationFailed,
    Allocator,
    Object,
    defaulted_claim_spec,
    dynamic_resources,
    go_programs,
)
from tests.deviceclasses.published_nodes import plan
from tests.deviceclasses.sample_claims import NODE_OBJECT
from tests.deviceclasses.shipped_classes import ALL, DEFAULT, OPT_IN, ROOT, objects

DEPLOY = ROOT / "deploy"
MACHINES = (
    *("hgx-h100", "a30-quad", "l4-quad", "gb200-tray", "dgx-a100", "hgx-b200", "rtx-pro-6000-octo"),
    *("hgx-h100-shared-nvswitch", "vgpu-host-l40s", "l40s-vgpu-unlicensed"),
)
CONFIGURATIONS = {
    "": None,
    **{file.stem: file.read_text() for file in sorted((DEPLOY / "examples/node-config").glob("*.yaml"))},
}
PODS = 64
"""More than a node of these takes of most."""

Pods = list[list[str]]
"""The devices of each pod that fits on a node, one pod after the other."""

DISTINCT = "it refuses distinctAttribute"
ADMIN = "it takes devices for admin access"
OWN = "it does not know what only a node knows"
TAINTS = "it does not see taints"
COUNTERS = "each share takes the counters of its GPU again"
DIFFERENCES = {
    DISTINCT: """mig/distinct-parents shared/two-gpus distinct-gpus/two-gpus-partitions
        distinct-gpus/two-gpus-shares""",
    ADMIN: "admin-monitoring/every-gpu shared/monitoring",
    OWN: "passthrough/passed-through passthrough/same-gpu",
    TAINTS: """gpu gpu.nvidia.com gpu.shared medium monitoring shared-timesliced first-available/best
        from-nvidia-driver/by-mps one-gpu-three-ways/in-turns passthrough-beside-vgpu/any-vgpu
        priorities/whole shared/fraction shared/medium shared/one-claim-mps tenants/notebook
        three-tiers/notebook tier-policy/small translate/turns vgpu/any-vgpu whole-gpu/one-gpu""",
    COUNTERS: """gpu.shared monitoring shared-memory shared-mps shared-timesliced first-available/best
        memory-limits/four-gib memory-limits/ten-gib mps-limits/greedy mps-limits/memory-10gi
        mps-limits/memory-20gi mps-limits/memory-30gi mps-limits/quarter mps-limits/tighter
        one-gpu-three-ways/in-turns one-gpu-three-ways/side-by-side policies/allowed probe/probe-memory
        shared/by-number tenants/notebook tenants/serve three-tiers/notebook tier-policy/small""",
}
"""What Karpenter does otherwise -> the claims that get other devices because of it, on some node."""


@cache
def claims() -> dict[str, Object]:
    """A claim for each class, and those of the samples and scenarios, each once.

    Karpenter does not look at what a pod has in its limits.
    """
    found = {name: claim(name) for name in {**DEFAULT, **OPT_IN}}
    for file in sorted(
        file for part in ("examples", "scenarios") for file in DEPLOY.glob(f"{part}/*/*.yaml")
    ):
        for one in objects(file):
            if one.get("kind") in ("ResourceClaim", "ResourceClaimTemplate"):
                spec = one["spec"].get("spec", one["spec"])
                found[f"{file.parent.name}/{one['metadata']['name']}"] = claim_with(spec["devices"])
    words = {json.dumps(one, sort_keys=True): word for word, one in found.items()}
    return {word: found[word] for word in words.values()}


def claim_with(devices: Object) -> Object:
    spec = defaulted_claim_spec({"devices": devices})
    return {"metadata": {"name": "one", "namespace": "default"}, "spec": spec}


def claim(device_class: str, where: str = "", match: str = "") -> Object:
    """A claim for a device of a class, whose selector and constraint name attributes of the driver."""
    selectors = [{"cel": {"expression": f"device.attributes['gpu.nvidia.com'].{where}"}}] if where else []
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class, "selectors": selectors}}
    constraints = [{"matchAttribute": f"gpu.nvidia.com/{match}"}] if match else []
    return claim_with({"requests": [request], "constraints": constraints})


def question(slices: list[Object], asked: list[Object]) -> Object:
    resources, classes = dynamic_resources(slices), [*ALL.values()]
    return {"resources": resources, "classes": classes, "claims": asked, "pods": PODS}


def karpenter(*questions: Object) -> list[list[Pods]]:
    """What Karpenter's allocator gives to the pods of each claim of each question."""
    lines = "".join(json.dumps(one) + "\n" for one in questions)
    program = [go_programs("karpenter") / "allocates"]
    done = subprocess.run(program, input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return [[[[d["device"] for d in pod] for pod in one["pods"]] for one in said] for said in answers]


def kubernetes(
    slices: list[Object], asked: Object, empty: Allocator | None = None, *, once_each: bool = False
) -> Pods:
    """What Kubernetes' allocator gives to the pods; with ``once_each`` a share that takes counters only once.

    ``empty`` is an allocator for these slices, which remembers what it read of them.
    """
    allocator = (empty or Allocator(slices, ALL.values(), ())).with_claims(())
    held, given = list[Object](), Pods()
    once = {
        device["name"]
        for device in devices_of(slices)
        if device.get("allowMultipleAllocations") and device.get("consumesCounters")
    }
    while len(given) < PODS:
        one = asked | {"metadata": asked["metadata"] | dict.fromkeys(("name", "uid"), f"pod-{len(given)}")}
        allocations = None
        with suppress(AllocationFailed):
            allocations = allocator.allocate(NODE_OBJECT, [one])
        if allocations is None:
            break
        held.append({**one, "status": {"allocation": allocations[0]}})
        given.append([result["device"] for result in allocations[0]["devices"]["results"]])
        if once_each and once.intersection(given[-1]):
            slices = with_taints(slices, {device for devices in given for device in devices} & once)
            allocator = Allocator(slices, ALL.values(), held)
        else:
            allocator.assume(held[-1])
    return given


def devices_of(slices: list[Object]) -> list[Object]:
    return [device for one in slices for device in one["spec"].get("devices", ())]


def with_taints(slices: list[Object], names: set[str]) -> list[Object]:
    """The slices with a taint on these devices, and none on others."""
    changed = copy.deepcopy(slices)
    for device in devices_of(changed):
        device["taints"] = [{"key": "used", "effect": "NoSchedule"}] if device["name"] in names else []
    return changed


def otherwise(slices: list[Object], asked: Object) -> tuple[str, Pods]:
    """What Karpenter passes over of a node and a claim, and what Kubernetes would give without that."""
    asked = copy.deepcopy(asked)
    if any("distinctAttribute" in one for one in asked["spec"]["devices"].get("constraints", ())):
        return DISTINCT, []
    if "pciBusID" in json.dumps(asked["spec"]["devices"]["requests"]):
        return OWN, []
    reason = TAINTS if any("taints" in device for device in devices_of(slices)) else COUNTERS
    for request in asked["spec"]["devices"]["requests"]:
        if request.get("exactly", {}).pop("adminAccess", None):
            reason = ADMIN
    return reason, kubernetes(with_taints(slices, set()), asked, once_each=True)


@cache
def nodes(machine: str) -> dict[str, list[Object]]:
    """What nodes with a machine publish, by the first configuration with which they publish just that."""
    found: dict[str, tuple[str, list[Object]]] = {}
    for word, configuration in CONFIGURATIONS.items():
        slices = list(plan(machine, configuration).slices)
        found.setdefault(json.dumps(slices, sort_keys=True), (word, slices))
    return dict(found.values())


@cache
def differences(machine: str) -> dict[str, set[str]]:
    """The claims that Karpenter answers otherwise, on some node with a machine, by the reason for it."""
    answers = karpenter(*(question(slices, [*claims().values()]) for slices in nodes(machine).values()))
    found = defaultdict[str, set[str]](set)
    for (configuration, slices), said in zip(nodes(machine).items(), answers, strict=True):
        empty = Allocator(slices, ALL.values(), ())
        for (word, asked), given in zip(claims().items(), said, strict=True):
            if given != kubernetes(slices, asked, empty):
                reason, expected = otherwise(slices, asked)
                found[reason if given == expected else f"unknown: {configuration}"].add(word)
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_karpenter_gives_what_kubernetes_gives_but_for_what_it_passes_over(machine: str) -> None:
    for reason, words in differences(machine).items():
        assert words <= {*DIFFERENCES.get(reason, "").split()}, reason


def test_every_difference_that_is_listed_is_there() -> None:
    found = {why: {word for one in MACHINES for word in differences(one)[why]} for why in DIFFERENCES}

    assert found == {why: {*words.split()} for why, words in DIFFERENCES.items()}
    assert len(claims()) * sum(len(nodes(machine)) for machine in MACHINES) > 8000


@pytest.mark.parametrize(
    ("configuration", "asked", "by_kubernetes", "by_karpenter"),
    [
        ("", claim("large", where="numaNode == 0"), 4, 4),
        ("", claim("large", where="uuid != ''"), 8, 0),
        ("all-tiers", claim("large", match="uuid"), 8, 8),
        ("", claim("large", match="uuid"), 8, 0),
        ("all-tiers", claim("monitoring", where="nvlinkPeerCount == 7"), 0, 8),
    ],
    ids=["known", "not known", "bound to its shares", "bound to nothing", "fails on partitions"],
)
def test_a_claim_is_read_before_the_node_exists(
    configuration: str, asked: Object, by_kubernetes: int, by_karpenter: int
) -> None:
    slices = list(plan("hgx-h100", CONFIGURATIONS[configuration]).slices)
    ((given,),) = karpenter(question(slices, [asked]))

    assert (len(kubernetes(slices, asked)), len(given)) == (by_kubernetes, by_karpenter)


def test_what_karpenter_knows_of_nvidias_driver_on_aws_serves_the_classes_without_our_attributes() -> None:
    attributes = {"type": {"string": "gpu"}, "productName": {"string": "NVIDIA H100 80GB HBM3"}}
    gpu = {"name": "gpu-0", "attributes": attributes, "capacity": {"memory": {"value": "81152Mi"}}}
    slices = [{"spec": {"driver": "gpu.nvidia.com", "pool": {"name": "gpus"}, "devices": [gpu]}}]
    names = [*DEFAULT, *OPT_IN]

    (answers,) = karpenter(question(slices, [claim(name) for name in names]))

    assert {name for name, given in zip(names, answers, strict=True) if given} == {
        *("gpu.nvidia.com", "gpu", "large", "monitoring")
    }


def test_the_keys_are_those_of_karpenters_types() -> None:
    asked = question([], [])
    asked["resources"]["resourceSliceTemplates"] = asked["resources"].pop("ResourceSliceTemplates")

    with pytest.raises(AssertionError, match="resourceSliceTemplates"):
        karpenter(asked)
