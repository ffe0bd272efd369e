"""Checks memory limits in the cluster: classes that insist on them, and claims without their limit."""

from __future__ import annotations

from collections.abc import Iterator

from driver.devices.memory_limits import FIRST_DRIVER, LIMITS_WITHHELD, MEMORY_LIMITS
from driver.devices.names import DRIVER_NAME
from gpuctl.cli.cluster import Object
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, skipped, warn
from gpuctl.doctor.outside.classes import distinct_devices, expressions, own_classes, selects, waited_for
from gpuctl.doctor.outside.publishing import current_devices
from gpuctl.doctor.outside.seen import ClusterSeen, name_of, namespace_of
from gpuctl.fleet.devices import attribute

_NOT_HELD = "MemoryLimitNotHeld"
"""The reason that the plugin gives in the status of a claim, and in its events."""


@check(
    "class-limits",
    "classes that require a memory limit, compared with what nodes publish",
    "never; warns if claims wait for a class without devices, and gives the reason for each node",
)
def _classes(seen: ClusterSeen) -> Finding:
    insisting = [one for one in own_classes(require(seen.classes)) if _insists(one)]
    require(seen.slices)
    devices = distinct_devices(seen)
    if not insisting:
        return ok("no class requires enforced memory limits")
    if not devices:
        return skipped("nothing is published")
    nowhere = sorted(name_of(one) for one in insisting if not selects(one, devices))
    asked = [name for name in nowhere if name in set(waited_for(seen))]
    reasons = list(_reasons(seen))
    if asked:
        return warn(
            f"claims wait for {', '.join(asked)}, and no node publishes a device with enforced memory limits",
            "use driver R615 or newer on nodes with cgroup v2, and share their GPUs in the node "
            "configuration; or share by MPS",
            reasons,
        )
    if nowhere:
        return ok(f"no node publishes a device for {', '.join(nowhere)}, and no claim asks for one", reasons)
    return ok(
        f"a device is published for {counted(len(insisting), 'class', 'classes')} with enforced memory limits"
    )


def _insists(device_class: Object) -> bool:
    words = ("memoryIsolation", MEMORY_LIMITS)
    return any(word in one for one in expressions(device_class) for word in words)


def _reasons(seen: ClusterSeen) -> Iterator[str]:
    """For each node that publishes no device with memory limits, the reasons."""
    whys: dict[str, dict[str, None]] = {}
    for node, device in current_devices(seen):
        whys.setdefault(node, {})[_reason(device)] = None
    for node, found in sorted(whys.items()):
        if "" not in found:
            yield f"{node}: {'; '.join(found)}"


def _reason(device: Object) -> str:
    """Why a device has no memory limits; empty if it has them."""
    if attribute(device, MEMORY_LIMITS) is not None:
        return ""
    withheld = attribute(device, LIMITS_WITHHELD)
    if withheld is not None:
        return str(withheld)
    version = str(attribute(device, "driverVersion") or "")
    major = version.partition(".")[0]
    if major.isdecimal() and int(major) < FIRST_DRIVER:
        return f"driver {version} is older than R{FIRST_DRIVER}"
    return "the reason is not published"


@check(
    "claim-limits",
    "the status of claims: whether the NVIDIA driver limits their memory",
    "one has lost its limit",
)
def _held(seen: ClusterSeen) -> Finding:
    entries = [(claim, entry) for claim in require(seen.claims) for entry in _entries(claim)]
    lines = [
        f"{namespace_of(claim)}/{name_of(claim)}, {entry.get('device')}: {condition.get('message') or '?'}"
        for claim, entry in entries
        for condition in entry.get("conditions") or ()
        if condition.get("reason") == _NOT_HELD and condition.get("status") == "False"
    ]
    if lines:
        return fail(
            f"{counted(len(lines), 'share')} of GPU memory with a limit that is not enforced",
            "the plugin retries every 15 s; `gpuctl doctor NODE` shows the limits in NVML there",
            lines,
        )
    return ok(
        f"no claim reports a limit that is not enforced, of {counted(len(entries), 'device')} with a status"
    )


def _entries(claim: Object) -> Iterator[Object]:
    """What this driver wrote into the status of a claim, an entry for each device."""
    for entry in (claim.get("status") or {}).get("devices") or ():
        if entry.get("driver") == DRIVER_NAME:
            yield entry


MEMORY_CHECKS = (_classes, _held)
