"""The check that the driver would hand out the GPUs, with what NVML answers."""

from __future__ import annotations

from driver.policy.offers import node_offers
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require
from gpuctl.verify.subject import Subject


@check
def offered(subject: Subject) -> Finding:
    """Which GPUs the driver would offer to pods without a node configuration, and which it would keep from
    them.

    Fails if NVML does not identify a GPU, or answers so that it would be tainted.
    """
    inventory = require(subject.seen.inventory)
    offers = node_offers(inventory, None)
    sick = [
        f"{one.pci or 'a GPU'}: {'; '.join(problem.message for problem in one.problems)}"
        for one in inventory.unread
    ]
    sick += [
        f"{device.name}: {', '.join(f'{taint.key}={taint.value}' for taint in device.taints)}"
        for device in offers.devices
        if any(taint.effect != "None" for taint in device.taints)
    ]
    sick += [f"{one.pci}: {one.reason}" for one in offers.withheld if one.taints]
    kept = [f"{one.pci}: not offered: {one.reason}" for one in offers.withheld if not one.taints]
    if sick:
        return fail(
            f"{counted(len(sick), 'device')} would not be handed out",
            "look for Xid and NVRM messages in the kernel log; a GPU that hangs or is lost needs a reset; a "
            "call that NVML refuses needs root",
            [*sick, *kept],
        )
    return ok(f"{counted(len(offers.devices), 'device')} would be offered to pods", kept)
