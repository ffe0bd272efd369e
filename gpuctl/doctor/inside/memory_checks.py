"""Checks of memory limits: whether the node can hold them, how containers wait for them, what is held."""

from __future__ import annotations

from collections import Counter

from driver.devices.memory_limits import FIRST_DRIVER
from gpuctl.cli.unread import Unread
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, warn
from gpuctl.doctor.inside.claim_checks import held_entries
from gpuctl.doctor.inside.seen import LimitSeen, NodeSeen
from kubeletplugin.claims.journal.entry import Entry, HeldDevice

_NOTHING = "no claim has a limit on GPU memory"


@check
def _memory_limits(seen: NodeSeen) -> Finding:
    """Shares of GPU memory, compared with what the node can limit: it needs driver R615 and cgroup v2.

    Fails if a promised limit cannot be set; warns about shares without limits.
    """
    limited, accounted = _shares(seen, limited=True), _shares(seen, limited=False)
    why = _cannot_hold(seen)
    require(limited or accounted, f"no whole GPU is shared; {why}" if why else "no whole GPU is shared")
    if limited and why:
        return fail(
            f"{counted(len(limited), 'share')} whose memory the NVIDIA driver cannot limit: {why}",
            "restore the node's driver and cgroup version, or end the pods of these claims",
            limited,
        )
    if accounted and why:
        return warn(
            f"{counted(len(accounted), 'share')} without an enforced memory limit: {why}",
            "use driver R615 or newer and cgroup v2; until then only MPS limits the memory of shares",
            accounted,
        )
    words = f"{counted(len(limited), 'share')} limited by the NVIDIA driver"
    return ok(f"{words}, {len(accounted)} not limited, or by MPS alone" if accounted else words, accounted)


def _shares(seen: NodeSeen, *, limited: bool) -> list[str]:
    """The shares of whole GPUs whose memory the NVIDIA driver limits, or does not limit."""
    return [
        f"{entry.owner}: {device.device}"
        for entry in held_entries(seen)
        for device in entry.devices
        if (device.memory_limit_bytes is not None) is limited and (limited or _is_part_of_gpu(device))
    ]


def _is_part_of_gpu(device: HeldDevice) -> bool:
    return device.share is not None and device.share.is_part and device.kind == "whole"


def _cannot_hold(seen: NodeSeen) -> str:
    """Why this node cannot hold containers to memory limits; empty if nothing is known against it."""
    if seen.cgroups == 1:
        return "the node has control groups of version 1, and limits need version 2"
    # What NVML takes as a container's name is the path of its cgroup v2 folder; version 1 has none.
    version = seen.kernel_driver
    if version is None and not isinstance(seen.inventory, Unread):
        version = seen.inventory.driver_version
    major = (version or "").partition(".")[0]
    if major.isdecimal() and int(major) < FIRST_DRIVER:
        return f"driver {version} is older than R{FIRST_DRIVER}"
    return ""


def _limited(seen: NodeSeen) -> list[Entry]:
    """The prepared claims with a device whose memory is limited."""
    return [
        entry
        for entry in held_entries(seen)
        if entry.state == "prepared"
        and any(device.memory_limit_bytes is not None for device in entry.devices)
    ]


@check
def _memory_hook(seen: NodeSeen) -> Finding:
    """The program gpu-memory-hook on the host, and the paths of it in CDI specs.

    Fails if a path leads to no file, to one that cannot run, or to a different file; warns about older
    versions.
    """
    memory = seen.memory
    # The runtime calls the hook before a container's first process; without the program no container starts.
    wrong = [f"{one.path}: {one.wrong}" for one in memory.named if one.wrong]
    if wrong:
        return fail(
            f"{counted(len(wrong), 'program')} that containers need at their start cannot be run",
            "delete these pods; check that nobody cleans the plugin's folder, nor mounts it noexec",
            wrong,
        )
    if not memory.copies and not memory.named:
        require(_limited(seen), _NOTHING)
        return fail(
            "claims have memory limits, but the host has no gpu-memory-hook",
            "the plugin's log says why it was not copied",
        )
    broken = [f"{one.path}: {one.wrong}" for one in memory.copies if one.wrong]
    if broken:
        return warn(
            "a copy of gpu-memory-hook cannot be run", "the plugin makes a new copy by itself", broken
        )
    older = [one.path for one in memory.named if one.is_own is False]
    if older:
        return warn(
            f"claims name {counted(len(older), 'program')} of another version",
            "nothing: they still work, and are removed with the pods of these claims",
            older,
        )
    return ok(f"{counted(len(memory.copies), 'copy', 'copies')} of gpu-memory-hook can be run")


@check
def _memory_sockets(seen: NodeSeen) -> Finding:
    """The sockets that gpu-memory-hook calls: who can reach them, and who answers.

    Fails if others than root can reach them, or no plugin answers while memory limits are in force.
    """
    sockets, claims = seen.memory.sockets, _limited(seen)
    if sockets.open_to_others:
        return fail(
            "users other than root may reach the sockets of gpu-memory-hook, which sets memory limits",
            "chmod 700 the folder and chmod 600 the sockets, and find out who changed them",
            sockets.open_to_others,
        )
    answering = [name for name, answers in sockets.answers if answers]
    if claims and not answering:
        return fail(
            f"{counted(len(claims), 'claim')} with memory limits, but no plugin answers in "
            f"{sockets.folder}: their containers cannot start",
            "check that the plugin runs; its log says why it does not serve there",
            [name for name, _ in sockets.answers],
        )
    require(sockets.is_there, _NOTHING)
    return ok(f"{counted(len(answering), 'socket')} for gpu-memory-hook, for root only")


@check
def _memory_held(seen: NodeSeen) -> Finding:
    """The recorded memory limits, compared with those that NVML has for running containers.

    Fails if a container, or all containers of a claim together, can use more than their part.
    """
    memory = seen.memory
    if memory.wrong:
        return fail(
            f"{counted(len(memory.wrong), 'file')} of the ledger of memory limits cannot be read",
            "check the disk; end the pods of these claims, so that new ones are prepared",
            memory.wrong,
        )
    require(memory.limits or _limited(seen), _NOTHING)
    # NVML limits each control group by itself, so the containers of a claim are added up here.
    loose = [words for one in memory.limits if (words := _difference(one))] + _together(seen)
    if loose:
        return fail(
            f"{counted(len(loose), 'limit')} of GPU memory not enforced as required",
            "the plugin sets missing limits every 15 s; the claim's events say what is in the way",
            loose,
        )
    unknown = [f"{_who(one)}: {one.in_nvml.why}" for one in memory.limits if isinstance(one.in_nvml, Unread)]
    if unknown:
        return warn(
            f"{counted(len(unknown), 'limit')} that NVML does not report", "see the check nvml", unknown
        )
    return ok(f"NVML limits the memory of each of {counted(len(memory.limits), 'live container')}")


def _who(one: LimitSeen) -> str:
    return f"{one.container} of claim UID {one.claim_uid} on {one.pci}"


def _difference(one: LimitSeen) -> str:
    """How NVML's limit of a container is too loose; empty if it is not, or if NVML did not answer."""
    if isinstance(one.in_nvml, Unread):
        return ""
    if one.in_nvml is None:
        return f"{_who(one)}: it has no limit"
    if one.in_nvml.hard_bytes > one.hard_bytes:
        return f"{_who(one)}: its limit is {one.in_nvml.hard_bytes} bytes, but must be {one.hard_bytes}"
    return ""


def _together(seen: NodeSeen) -> list[str]:
    """The claims whose containers together may use more memory than the claim has."""
    sums: Counter[tuple[str, str]] = Counter()
    for one in seen.memory.limits:
        if one.in_nvml is not None and not isinstance(one.in_nvml, Unread):
            sums[one.claim_uid, one.pci] += one.in_nvml.hard_bytes
    most: Counter[tuple[str, str]] = Counter()
    owners = {}
    for entry in _limited(seen):
        owners[entry.uid] = entry.owner
        for device in entry.devices:
            if device.memory_limit_bytes is not None:
                most[entry.uid, device.pci] += device.memory_limit_bytes
    return [
        f"{owners[uid]} on {pci}: its containers may use {sums[uid, pci]} bytes together, the "
        f"claim only {allowed}"
        for (uid, pci), allowed in sorted(most.items())
        if sums[uid, pci] > allowed
    ]


MEMORY_CHECKS = (_memory_limits, _memory_hook, _memory_sockets, _memory_held)
