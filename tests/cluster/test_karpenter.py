"""Karpenter's own allocator says of a planned node what Kubernetes' allocator says of the real one.

Karpenter judges what ``gpuctl plan -o karpenter`` prints. Where it decides otherwise than Kubernetes, what it
passes over has to explain its answer, down to the devices.
"""

import copy
import json
import subprocess
from collections import defaultdict
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
from tests.deviceclasses.sample_claims import NODE_OBJECT, claim_of
from tests.deviceclasses.shipped_classes import ALL, DEFAULT, OPT_IN, ROOT, objects

EXAMPLES = ROOT / "deploy/examples"
MACHINES = (
    *("hgx-h100", "a30-quad", "l4-quad", "gb200-tray", "dgx-a100", "hgx-b200", "rtx-pro-6000-octo"),
    *("hgx-h100-shared-nvswitch", "vgpu-host-l40s", "l40s-vgpu-unlicensed"),
)
CONFIGURATIONS = {
    "": None,
    **{file.stem: file.read_text() for file in sorted((EXAMPLES / "node-config").glob("*.yaml"))},
}
PODS = 64
"""More than a node of these takes of most."""

Devices = list[str]
Pods = list[Devices]
"""The devices of each pod that fits on a node, one pod after the other."""

DISTINCT = "it refuses distinctAttribute"
ADMIN = "it takes devices for admin access"
TAINTS = "it does not see taints"
COUNTERS = "each share takes the counters of its GPU again"
DIFFERENCES = {
    DISTINCT: {"mig/distinct-parents", "shared/two-gpus"},
    ADMIN: {"shared/monitoring"},
    TAINTS: {
        *("gpu", "gpu.nvidia.com", "gpu.shared", "medium", "monitoring", "shared-timesliced"),
        *("probe/time-sliced", "probe/whole", "translate/turns", "vgpu/guest-any", "shared/fraction"),
        *("shared/medium", "shared/one-claim-mps", "shared/one-claim-time-slicing", "shared/time-sliced"),
    },
    COUNTERS: {
        *("gpu.shared", "monitoring", "shared-memory", "shared-mps", "shared-timesliced"),
        *("probe/memory", "probe/mps", "probe/time-sliced", "shared/by-memory", "shared/by-number"),
        *("shared/memory-limit", "shared/mps", "shared/time-sliced"),
    },
}
"""What Karpenter does otherwise -> the claims that get other devices because of it, on some node."""


@cache
def claims() -> dict[str, Object]:
    """The claims of the samples, and one for each class."""
    found = {}
    for file in sorted(EXAMPLES.glob("*/*.yaml")):
        # Karpenter does not look at what a pod has in its limits.
        if any(one.get("kind") in ("ResourceClaim", "ResourceClaimTemplate") for one in objects(file)):
            found[f"{file.parent.name}/{file.stem}"] = claim_of(file)
    return found | {name: claim(name) for name in {**DEFAULT, **OPT_IN}}


def claim(device_class: str, constraint: Object | None = None, **more: object) -> Object:
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class, **more}}
    spec = {"devices": {"requests": [request], "constraints": [constraint] if constraint else []}}
    return {"metadata": {"name": "one", "namespace": "default"}, "spec": defaulted_claim_spec(spec)}


def matching(attribute: str) -> Object:
    return {"matchAttribute": f"gpu.nvidia.com/{attribute}"}


def question(slices: list[Object], asked: list[Object]) -> Object:
    classes = list(ALL.values())
    return {"resources": dynamic_resources(slices), "classes": classes, "claims": asked, "pods": PODS}


def karpenter(*questions: Object) -> list[list[Pods]]:
    """What Karpenter's allocator gives to the pods of each claim of each question."""
    program, lines = (
        go_programs("karpenter") / "allocates",
        "".join(json.dumps(one) + "\n" for one in questions),
    )
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=False)
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
        one = {
            **asked,
            "metadata": {**asked["metadata"], "name": f"pod-{len(given)}", "uid": str(len(given))},
        }
        try:
            allocations = allocator.allocate(NODE_OBJECT, [one])
        except AllocationFailed:
            return given
        if allocations is None:
            return given
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
        if device["name"] in names:
            device["taints"] = [{"key": "used", "effect": "NoSchedule"}]
        elif device.get("taints"):
            del device["taints"]
    return changed


def as_karpenter_sees(slices: list[Object], asked: Object) -> Pods:
    """What Kubernetes would give if the node and the claim had nothing that Karpenter passes over."""
    if any("distinctAttribute" in one for one in asked["spec"]["devices"].get("constraints", ())):
        return []
    asked = copy.deepcopy(asked)
    for request in asked["spec"]["devices"]["requests"]:
        request.get("exactly", {}).pop("adminAccess", None)
    return kubernetes(with_taints(slices, set()), asked, once_each=True)


def reason_of(slices: list[Object], asked: Object) -> str:
    """What Karpenter passes over."""
    devices = asked["spec"]["devices"]
    if any("distinctAttribute" in one for one in devices.get("constraints", ())):
        return DISTINCT
    if any(request.get("exactly", {}).get("adminAccess") for request in devices["requests"]):
        return ADMIN
    return TAINTS if any("taints" in device for device in devices_of(slices)) else COUNTERS


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
            if given == kubernetes(slices, asked, empty):
                continue
            explained = given == as_karpenter_sees(slices, asked)
            found[reason_of(slices, asked) if explained else f"unknown: {configuration}"].add(word)
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_karpenter_gives_what_kubernetes_gives_but_for_what_it_passes_over(machine: str) -> None:
    found = differences(machine)

    assert {reason: claims - DIFFERENCES.get(reason, set()) for reason, claims in found.items()} == {
        reason: set() for reason in found
    }


def test_every_difference_that_is_listed_is_there() -> None:
    found = {
        reason: {word for one in MACHINES for word in differences(one)[reason]} for reason in DIFFERENCES
    }

    assert found == DIFFERENCES
    assert len(claims()) * sum(len(nodes(machine)) for machine in MACHINES) > 5000


def selecting(expression: str) -> Object:
    return {"selectors": [{"cel": {"expression": f"device.attributes['gpu.nvidia.com'].{expression}"}}]}


@pytest.mark.parametrize(
    ("asked", "by_kubernetes", "by_karpenter", "configuration"),
    [
        pytest.param(claim("large", **selecting("numaNode == 0")), 4, 4, "", id="known before"),
        pytest.param(claim("large", **selecting("uuid != ''")), 8, 0, "", id="a node's own value"),
        pytest.param(claim("large", matching("uuid")), 8, 8, "all-tiers", id="that of its shares"),
        pytest.param(claim("large", matching("uuid")), 8, 0, "", id="shared with nothing"),
        pytest.param(
            claim("monitoring", **selecting("nvlinkPeerCount == 7")),
            0,
            8,
            "all-tiers",
            id="fails on partitions",
        ),
    ],
)
def test_a_claim_is_read_before_the_node_exists(
    asked: Object, by_kubernetes: int, by_karpenter: int, configuration: str
) -> None:
    slices = list(plan("hgx-h100", CONFIGURATIONS[configuration]).slices)
    ((given,),) = karpenter(question(slices, [asked]))

    assert (len(kubernetes(slices, asked)), len(given)) == (by_kubernetes, by_karpenter)


def test_what_karpenter_knows_of_nvidias_driver_on_aws_serves_the_classes_without_our_attributes() -> None:
    texts = {
        "type": "gpu",
        "brand": "Nvidia",
        "architecture": "Hopper",
        "productName": "NVIDIA H100 80GB HBM3",
    }
    attributes = {name: {"string": text} for name, text in texts.items()}
    attributes |= {"resource.kubernetes.io/pcieRoot": {"string": "pci0000:44"}}
    attributes |= {"cudaComputeCapability": {"version": "9.0.0"}}
    gpu = {"name": "gpu-0", "attributes": attributes, "capacity": {"memory": {"value": "81152Mi"}}}
    pool = {"name": "gpus-p5.48xlarge"}
    slices = [{"spec": {"driver": "gpu.nvidia.com", "pool": pool, "devices": [gpu]}}]
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
