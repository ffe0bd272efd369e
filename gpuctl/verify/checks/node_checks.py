"""The checks of a node that change nothing: those that doctor has for a node without a cluster, and more."""

from __future__ import annotations

from driver.policy.offers import tainted_offers
from gpuctl.doctor.check import Check, Finding, check, counted, fail, ok, require
from gpuctl.doctor.inside.checks import INSIDE
from gpuctl.doctor.inside.seen import NodeSeen
from gpuctl.verify.checks.kernel_checks import KERNEL_CHECKS
from gpuctl.verify.subject import Subject

WITHOUT_CLUSTER = (
    *("driver-root", "driver-edition", "same-driver", "nvml", "device-nodes", "fabric"),
    *("vgpu-license", "cgroups"),
    *("iommu", "vfio-modules", "vfio-safety", "virtual-functions"),
)
"""The checks of doctor that need neither a cluster nor this driver's processes."""


def _of_node(known: Check[NodeSeen]) -> Check[Subject]:
    """A check of doctor as one of a subject."""
    return Check(known.name, known.looks_at, known.fails_when, lambda subject: known.look(subject.seen))


@check
def offered(subject: Subject) -> Finding:
    """Which GPUs the driver would offer to pods without a node configuration, and which it would withhold.

    Fails if NVML does not identify a GPU, or answers so that it would be tainted.
    """
    inventory = require(subject.seen.inventory)
    offers = tainted_offers(inventory)
    sick = [
        f"{one.pci or 'a GPU'}: {'; '.join(problem.message for problem in one.problems)}"
        for one in inventory.unread
    ]
    ill = {gpu.pci for gpu in inventory.gpus if gpu.problems}
    sick += [
        f"{device.name}: {', '.join(f'{taint.key}={taint.value}' for taint in device.taints)}"
        for device in offers.devices
        if any(taint.effect != "None" for taint in device.taints)
    ]
    sick += [f"{one.pci}: {one.reason}" for one in offers.withheld if one.pci in ill]
    kept = [f"{one.pci}: not offered: {one.reason}" for one in offers.withheld if one.pci not in ill]
    if sick:
        return fail(
            f"{counted(len(sick), 'device')} would not be handed out",
            "look for Xid and NVRM messages in the kernel log; a GPU that hangs or is lost needs a reset; a "
            "call that NVML refuses needs root",
            [*sick, *kept],
        )
    return ok(f"{counted(len(offers.devices), 'device')} would be offered to pods", kept)


_BY_NAME = {known.name: known for known in INSIDE}
NODE_CHECKS: tuple[Check[Subject], ...] = (
    *(_of_node(_BY_NAME[name]) for name in WITHOUT_CLUSTER),
    offered,
    *KERNEL_CHECKS,
)
"""The checks of the node, in their order."""
