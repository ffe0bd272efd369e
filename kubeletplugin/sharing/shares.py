"""What a share is: how a claim's devices are shared, what it may use of them, what its containers get: pure.

A device is shared for one of two reasons. Either it is published for sharing, and each claim has a share of
its own. Or the configuration of a claim asks for it; then only the pods of this claim share the device.

A share is its claim's guarantee of memory and its limit. A device that a claim has for itself has no limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from driver.claims.allocation import AllocatedDevice
from driver.claims.opaque import Document, GpuConfig, MigDeviceConfig, MpsSettings
from driver.devices.memory_limits import SMALLEST_LIMIT_BYTES
from driver.devices.names import DRIVER_NAME, unshared_name
from driver.devices.sharing import Share, SharedForm, read_share, split_shared_suffix
from driver.errors import ClaimRefused, DeviceHeld
from driver.kinds.kind import DeviceName
from kubeletplugin.claims.cdi.spec import CdiMount, Edits, MemoryHook, mps_hook
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, ShareRecord
from kubeletplugin.devices.host.driver_files import MPS_PROGRAMS
from kubeletplugin.kubelet.wire.planned import SharingRequest
from kubeletplugin.sharing.memory.gpu_limits import MIB

_RESCHEDULE = "delete the pod, so that it is scheduled again"


@dataclass(frozen=True, slots=True)
class Shareable:
    """One device with what its limits depend on."""

    device: str
    # The name of the request in the claim.
    request: str
    sharing: SharingRequest | None
    # The UUID by which a configuration can name the device, empty for a partition that is not made yet.
    uuid: str
    # All of its memory.
    memory_bytes: int
    # What claims can divide of it: without what the NVIDIA driver reserves for itself.
    shareable_bytes: int
    # What its slice says, None if the slice was never seen.
    published_bytes: int | None
    # Whether it is a GPU, and not a partition.
    whole: bool = True
    # Whether the NVIDIA driver limits containers to their part of the memory.
    limits: bool = False


def sharing_request(
    allocated: AllocatedDevice, name: DeviceName, config: Document | None, of_class: Document | None = None
) -> SharingRequest | None:
    """How the device is to be shared, None if it is not.

    ``config`` is the configuration that applies to the device, ``of_class`` the last one of its class. Raises
    ClaimRefused for impossible amounts, a strategy other than the device's, and limits under which nothing
    runs.
    """
    # Admin access looks at devices and takes nothing of them.
    if allocated.admin_access:
        return None
    wanted = config if isinstance(config, GpuConfig | MigDeviceConfig) else GpuConfig()
    strategy, mps = wanted.strategy, wanted.mps
    if mps.active_thread_percentage == 0:
        raise ClaimRefused(
            f"request {allocated.request} limits MPS clients to 0 percent of the threads, so nothing could "
            "run",
            "set defaultActiveThreadPercentage to 1 to 100, or leave it out",
        )
    form = name.shared
    if form is None:
        # A partition has no time-slice to set: the processes on it take turns anyway. NVIDIA's own driver
        # accepts this configuration for a partition, too.
        if strategy is None or (strategy == "TimeSlicing" and not name.kind.has_modes):
            return None
        return SharingRequest(strategy, interval=_interval(config), mps=mps)
    if strategy not in (None, form.strategy):
        raise ClaimRefused(
            f"request {allocated.request} asks for sharing by {strategy}, but {allocated.device} is shared "
            f"by {form.strategy}",
            "use a class whose devices are shared by that strategy, or remove `sharing` from the opaque "
            "configuration",
        )
    if allocated.share_id is None:
        raise ClaimRefused(
            f"the allocation of {allocated.device}, a shared device, has no shareID", _RESCHEDULE
        )
    consumed = dict(allocated.consumed_capacity)
    share = read_share(form, consumed, allocated.device, DRIVER_NAME)
    if share.memory_bytes is not None and share.memory_bytes % MIB:
        raise ClaimRefused(
            f"the claim was given {share.memory_bytes} bytes of {allocated.device}, but memory is given in "
            "whole MiB",
            _RESCHEDULE,
        )
    return SharingRequest(
        form.strategy, form, share, _interval(config), mps, has_strategy=strategy is not None,
        class_interval=_interval(of_class),
    )  # fmt: skip


def _interval(config: Document | None) -> str:
    """The time-slice that a configuration asks for, empty for none."""
    return config.interval if isinstance(config, GpuConfig) and config.strategy == "TimeSlicing" else ""


def share_records(devices: Sequence[Shareable]) -> tuple[ShareRecord | None, ...]:
    """The journal's record of how each device is shared, None if it is not shared.

    A fractional device that the claim has all of is not shared, unless the configuration asks for it. Raises
    ClaimRefused for limits above the share, for limits of devices that the claim does not have, and if one
    request needs two MPS daemons.
    """
    groups = _groups(devices)
    records = tuple(_record(one, groups, devices) for one in devices)
    _refuse_two_daemons(devices, records)
    return records


def _refuse_two_daemons(devices: Sequence[Shareable], records: Sequence[ShareRecord | None]) -> None:
    """Raise ClaimRefused if the devices of one request have more than one MPS daemon.

    All devices of a request reach the same container, and a process can be the client of only one daemon. It
    could not use the other device.
    """
    first: dict[str, tuple[str, str]] = {}
    for one, record in zip(devices, records, strict=True):
        if record is not None and record.strategy == "MPS":
            group, device = first.setdefault(one.request, (record.group, one.device))
            if group != record.group:
                raise ClaimRefused(
                    f"request {one.request} was given {device} and {one.device} for use through MPS, but a "
                    "process can use MPS on only one of them",
                    "use a request for each, and give each container one of them",
                )


def _groups(devices: Sequence[Shareable]) -> Mapping[str, tuple[Shareable, ...]]:
    """By device, the whole GPUs that one MPS daemon serves for this claim, in the order of their UUIDs."""
    # A process sees only one partition at a time, so each partition has a daemon of its own.
    alike: dict[MpsSettings, list[Shareable]] = {}
    for one in devices:
        sharing = one.sharing
        if sharing is not None and _is_own(one, sharing) and sharing.strategy == "MPS" and one.whole:
            alike.setdefault(sharing.mps, []).append(one)
    groups: dict[str, tuple[Shareable, ...]] = {}
    for members in alike.values():
        in_order = tuple(sorted(members, key=lambda one: one.uuid))
        groups |= dict.fromkeys((one.device for one in members), in_order)
    return groups


def _record(
    one: Shareable, groups: Mapping[str, tuple[Shareable, ...]], devices: Sequence[Shareable]
) -> ShareRecord | None:
    sharing = one.sharing
    if sharing is None:
        return None
    if _has_all(one, sharing) and not _is_own(one, sharing):
        return None
    group = groups.get(one.device, (one,))
    configured_mib = _mib(_configured_bytes(one, sharing.mps, group, devices))
    share = sharing.share
    if sharing.form is None or _is_own(one, sharing):
        return ShareRecord(
            min(unshared_name(member.device) for member in group),
            sharing.strategy,
            interval=sharing.interval,
            active_thread_percentage=sharing.mps.active_thread_percentage or 100,
            pinned_memory_mib=configured_mib or 0,
            multi_user=sharing.mps.multi_user,
        )
    percentage, pinned_mib = _limits(one, sharing.form, share) if sharing.strategy == "MPS" else (100, 0)
    return ShareRecord(
        unshared_name(one.device),
        sharing.strategy,
        share.shares or 0,
        share.memory_bytes or 0,
        _class_interval(one, sharing),
        _within_share(one, sharing.mps.active_thread_percentage, percentage, "percent of the threads"),
        _within_share(one, configured_mib, pinned_mib, "MiB of memory"),
        multi_user=sharing.strategy == "MPS",  # the pods of other claims run as other users
    )


def _configured_bytes(
    one: Shareable, mps: MpsSettings, group: Sequence[Shareable], devices: Sequence[Shareable]
) -> int | None:
    """The configured memory limit of a device: the one for this device, else the one for all, else None."""
    # A limit for one device names it by UUID, or by its index among the devices of its daemon. It may also
    # name other devices of the claim that have the same configuration.
    alike = [member for member in devices if member.sharing is not None and member.sharing.mps == mps]
    names = {member.uuid: member.device for member in alike if member.uuid}
    names |= {str(ordinal): member.device for ordinal, member in enumerate(group)}
    limit = mps.pinned_memory_bytes
    for key, limit_bytes in mps.pinned_memory_bytes_per_device:
        if key not in names:
            raise ClaimRefused(
                f"defaultPerDevicePinnedMemoryLimit names {key[:64]!r}, but this configuration applies to "
                f"{', '.join(sorted(names))}",
                "name a device by its UUID, or by its index among the sorted UUIDs",
            )
        if names[key] == one.device:
            limit = limit_bytes
    return limit


def needs_published_memory(one: Shareable) -> bool:
    """Whether the published memory, which was not seen yet, decides if the claim took all of the device."""
    form = one.sharing.form if one.sharing else None
    if form is None or one.sharing is None or not (form.fractional and form.memory):
        return False
    share, memory_bytes = one.sharing.share, one.sharing.share.memory_bytes or 0
    # If the device is a share, or at least as much memory is still free, the claim did not take all of it.
    rest = one.memory_bytes - memory_bytes
    return share.shares == form.shares and one.published_bytes is None and 0 <= rest < memory_bytes


def _is_own(one: Shareable, sharing: SharingRequest) -> bool:
    """Whether only pods of this claim share the device."""
    return sharing.form is None or (sharing.has_strategy and _has_all(one, sharing))


def _has_all(one: Shareable, sharing: SharingRequest) -> bool:
    """Whether the claim has all of the device: it is not published for sharing, or it is fractional."""
    form, share = sharing.form, sharing.share
    if form is None:
        return True
    if not form.fractional:
        return False
    return share.shares == form.shares and (not form.memory or share.memory_bytes == one.published_bytes)


def _limits(one: Shareable, form: SharedForm, share: Share) -> tuple[int, int]:
    """The percentage of threads and the MiB of memory that belong to a share."""
    if share.memory_bytes is not None and share.memory_bytes > one.memory_bytes:
        raise ClaimRefused(
            f"the claim was given {share.memory_bytes} bytes of {one.device}, which has only "
            f"{one.memory_bytes}",
            _RESCHEDULE,
        )
    memory = share.memory_bytes
    if form.shares is None or share.shares is None:
        return min(100, max(1, 100 * (memory or 0) // one.shareable_bytes)), (memory or 0) // MIB
    if memory is None:
        memory = one.shareable_bytes * share.shares // form.shares
    return max(1, 100 * share.shares // form.shares), memory // MIB


def _class_interval(one: Shareable, sharing: SharingRequest) -> str:
    """The time-slice that the class gives a share, empty for none.

    A GPU has one time-slice for all its shares. If claims decided, one tenant would set it for the others. So
    ClaimRefused is raised for a claim that asks for a different one than its class.
    """
    if sharing.strategy != "TimeSlicing":
        return ""
    given = sharing.class_interval or "Default"
    if sharing.interval not in ("", given):
        raise ClaimRefused(
            f"request {one.request} asks for time-slice {sharing.interval} on {one.device}, which is "
            f"shared, but its class sets {given}",
            "leave the interval out, or use a class that sets it",
        )
    return sharing.class_interval


def _within_share(one: Shareable, configured: int | None, share: int, unit: str) -> int:
    """The configured limit, or that of the share if none is configured; raises ClaimRefused above that."""
    if configured is None:
        return share
    if configured > share:
        raise ClaimRefused(
            f"request {one.request} asks for {configured} {unit} of {one.device}, but its share is {share}",
            "ask for no more than the share, or leave the limit out",
        )
    return configured


def _mib(limit_bytes: int | None) -> int | None:
    return None if limit_bytes is None else limit_bytes // MIB


def memory_limit_bytes(one: Shareable, share: ShareRecord | None) -> int | None:
    """The memory limit of the claim's containers on this device, all together; None for no limit.

    ``share`` is how the device is shared, None if it is not. Raises ClaimRefused for a share in which nothing
    runs.
    """
    if one.sharing is None or share is None or not share.is_part or not one.limits:
        return None
    limit_bytes = share_bytes(share, one.sharing.form, one.shareable_bytes)
    if limit_bytes > one.memory_bytes:
        raise ClaimRefused(
            f"the claim was given {limit_bytes} bytes of {one.device}, which has only {one.memory_bytes}",
            _RESCHEDULE,
        )
    if limit_bytes < SMALLEST_LIMIT_BYTES:
        raise ClaimRefused(
            f"request {one.request} was given {limit_bytes // MIB} MiB of {one.device}, but no program "
            f"starts with less than {SMALLEST_LIMIT_BYTES // MIB} MiB",
            "ask for more memory, or for more shares",
        )
    return limit_bytes


def share_bytes(share: ShareRecord, form: SharedForm | None, total_bytes: int) -> int:
    """The memory that belongs to a share of a device with ``total_bytes``."""
    if share.memory_bytes:
        return share.memory_bytes
    if share.shares and form is not None and form.shares:
        # Rounded down to MiB: all shares together must not exceed the device.
        return total_bytes * share.shares // form.shares // MIB * MIB
    return total_bytes


_LET_GO = "it is released when the pods of the other claims have ended"
_INTERVALS = ("Short", "Medium", "Long")

Taken = Sequence[tuple[Entry | None, HeldDevice]]
"""The other shares of a device, each with the claim that has it; None is the claim that is prepared."""


def refuse_conflicts(
    uid: str, devices: Sequence[HeldDevice], memory_bytes: Sequence[int], holders: Iterable[Entry]
) -> None:
    """Raise DeviceHeld if the claim's shares do not fit beside those of other claims.

    ``memory_bytes`` is the memory of each device, 0 if it is not divided. ``holders`` are the claims on the
    GPUs. Two schedulers can hand out more than there is, and so can one after a pod was deleted by force.
    Only the log names the other claims: they may belong to other tenants.
    """
    others = [entry for entry in holders if entry.uid != uid]
    for index, held in enumerate(devices):
        _, form = split_shared_suffix(held.device)
        if held.admin_access or form is None:
            continue
        # One claim can have several shares of a device. Each is checked together with those before it.
        beside = [one for one in devices[:index] if one.device == held.device]
        taken = [*_of_others(held, others), *((None, one) for one in beside)]
        _refuse_overcommit(held, form.shares, memory_bytes[index], taken)


def refuse_overpromised(
    uid: str, devices: Sequence[HeldDevice], memory_bytes: Sequence[int], holders: Iterable[Entry]
) -> None:
    """Raise DeviceHeld if claims together are guaranteed more memory of a GPU than it has.

    The arguments are those of ``refuse_conflicts``.
    """
    others = [entry for entry in holders if entry.uid != uid]
    for held, total_bytes in zip(devices, memory_bytes, strict=True):
        if held.memory_limit_bytes is None:
            continue
        own = [one for one in devices if one.pci == held.pci]
        taken = [(entry, one) for entry in others for one in entry.devices if one.pci == held.pci]
        together = sum(_guaranteed_bytes(one, total_bytes) for one in (*own, *(one for _, one in taken)))
        if together > total_bytes:
            raise _held(
                f"the GPU of {held.device} has {total_bytes} bytes of memory, but with this claim "
                f"{together} bytes would be guaranteed",
                taken,
            )


def _guaranteed_bytes(held: HeldDevice, total_bytes: int) -> int:
    if held.memory_limit_bytes is not None:
        return held.memory_limit_bytes
    if held.share is None or not held.share.is_part:
        # All of the GPU. Nobody has shares beside that, except with admin access, which takes nothing.
        return 0
    # Nothing enforces the limit of this share, but its claim was promised the memory all the same.
    _, form = split_shared_suffix(held.device)
    return share_bytes(held.share, form, total_bytes)


def _of_others(held: HeldDevice, others: Sequence[Entry]) -> list[tuple[Entry | None, HeldDevice]]:
    return [
        (entry, one)
        for entry in others
        for one in entry.devices
        if one.device == held.device and not one.admin_access
    ]


def _refuse_overcommit(held: HeldDevice, shares: int | None, memory_bytes: int, taken: Taken) -> None:
    alone = any(not _is_part(one) for _, one in taken)
    if taken and (alone or not _is_part(held)):
        whose = "this claim" if all(entry is None for entry, _ in taken) else "another claim"
        raise _held(f"{held.device} can only be used by one claim at a time, and {whose} has it, too", taken)
    records = [one.share for one in (held, *(one for _, one in taken)) if one.share is not None]
    all_shares = sum(record.shares for record in records)
    all_memory = sum(record.memory_bytes for record in records)
    if shares is not None and all_shares > shares:
        raise _held(
            f"{held.device} has {shares} shares, but with this claim {all_shares} would be used",
            taken,
        )
    if memory_bytes and all_memory > memory_bytes:
        raise _held(
            f"{held.device} has {memory_bytes} bytes of memory, but with this claim {all_memory} would be "
            "used",
            taken,
        )


def _held(what: str, taken: Taken) -> DeviceHeld:
    holders = {entry.uid: entry.owner for entry, _ in taken if entry is not None}
    return DeviceHeld(
        what,
        _LET_GO,
        for_log=f"held by {', '.join(sorted(holders.values()))}" if holders else "",
        holders=tuple(sorted(holders)),
    )


def _is_part(held: HeldDevice) -> bool:
    return held.share is not None and held.share.is_part


def interval_of(records: Iterable[ShareRecord]) -> str:
    """The time-slice of a GPU with these shares: the shortest one in their classes, else Default.

    A GPU has one time-slice for all its processes. Refusing a different one would let the claims of one class
    keep those of another from starting.
    """
    wanted = {record.interval for record in records}
    return next((interval for interval in _INTERVALS if interval in wanted), "Default")


PIPES_IN_CONTAINER = "/tmp/nvidia-mps"  # noqa: S108 - where CUDA looks by itself, too
_ALL_THREADS = 100
SHM_IN_CONTAINER = "/dev/shm"  # noqa: S108 - the kernel's place for it


@dataclass(frozen=True, slots=True)
class MpsFolders:
    """The folders on the host that daemons and their clients share; ``daemons`` is the supervisor's."""

    daemons: Path

    def clients(self, group: str) -> Path:
        """The pipe directory of clients. It has only the one socket of the daemon that clients need."""
        return self.daemons / group / "clients"

    def shm(self, group: str) -> Path:
        """The /dev/shm of the group's daemon."""
        return self.daemons / group / "shm"


def mps_edits(
    held: HeldDevice,
    devices: Sequence[HeldDevice],
    folders: MpsFolders,
    request: str = "",
    hook: MemoryHook | None = None,
) -> Edits:
    """The variables, mounts and hook of ``held``, one of the claim's ``devices``; none without MPS.

    For ``request`` see ``mps_hook``.
    """
    share = held.share
    if share is None or share.strategy != "MPS":
        return Edits()
    # A client exchanges data with the daemon through both folders, so it needs the same /dev/shm.
    mounts = (
        CdiMount(str(folders.clients(share.group)), PIPES_IN_CONTAINER, is_writable=False),
        CdiMount(str(folders.shm(share.group)), SHM_IN_CONTAINER),
    )
    variables = [f"CUDA_MPS_PIPE_DIRECTORY={PIPES_IN_CONTAINER}"]
    if share.is_part:
        # All devices of one request reach the same container, so its shares of one device count together.
        together = [
            one.share
            for one in devices
            if one.share is not None and (one.request, one.device) == (held.request, held.device)
        ]
        percentage, pinned_mib = limits_together(together)
        # Device 0: a client of a share sees the one device that its daemon serves.
        pinned = [pinned_mib]
    else:
        percentage = share.active_thread_percentage
        served = {
            one.uuid: one.share.pinned_memory_mib
            for one in devices
            if one.share is not None and one.share.group == share.group
        }
        # The daemon numbers its devices in the order of their UUIDs.
        pinned = [served[uuid] for uuid in sorted(served)]
    # The daemon's own limits are those of the largest share, and on a partition do not hold the memory. The
    # environment of a client can lower them for this client, never raise them.
    if share.is_part or percentage < _ALL_THREADS:
        variables.append(f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={percentage}")
    if any(pinned):
        text = ",".join(f"{ordinal}={mib}M" for ordinal, mib in enumerate(pinned) if mib)
        variables.append(f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT={text}")
    # With nvidia-cuda-mps-control a client could end the daemon for all other clients.
    hooks = () if hook is None else (mps_hook(request, mounts[0].host_path, hook),)
    return Edits(
        variables=tuple(variables), mounts=mounts, without_programs=frozenset(MPS_PROGRAMS), hooks=hooks
    )


def limits_together(shares: Sequence[ShareRecord]) -> tuple[int, int]:
    """The limits of a client with all these shares: percent of threads, MiB of memory (0: no limit)."""
    percentage = min(_ALL_THREADS, sum(share.active_thread_percentage for share in shares))
    pinned = [share.pinned_memory_mib for share in shares]
    return percentage, 0 if 0 in pinned else sum(pinned)
