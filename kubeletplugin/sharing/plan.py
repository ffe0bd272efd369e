"""Works out how a claim's devices are shared and what the claim may use of them: pure, refusals first.

A device is shared either because it is offered so, and each claim has a share of its own, or because its
claim's configuration says so: then the pods of that one claim share a device that only the claim has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driver.claims.allocation import AllocatedDevice
from driver.claims.opaque import Burst, Document, GpuConfig, MigDeviceConfig, MpsSettings
from driver.devices.names import DRIVER_NAME, unshared_name
from driver.devices.sharing import Share, SharedForm, read_share
from driver.errors import ClaimRefused
from driver.kinds.kind import DeviceName
from kubeletplugin.claims.journal.entry import ShareRecord
from kubeletplugin.kubelet.wire.planned import Wish

MIB = 1 << 20

_ANEW = "delete the pod, so that it is scheduled anew"
_LOWER = "ask for no more than the share, or leave the limit out"


@dataclass(frozen=True, slots=True)
class Shareable:
    """One device with what its limits depend on.

    ``memory_bytes`` is all of its memory, ``shareable_bytes`` what claims can divide of it, and
    ``published_bytes`` what its slice says, None where that was never seen.
    ``uuid`` is what limits by device can name it by, empty for a partition that is not made yet. ``whole``
    is whether it is a GPU, and ``limits`` whether the NVIDIA driver holds containers to their memory of it.
    """

    device: str
    request: str
    wish: Wish | None
    uuid: str
    memory_bytes: int
    shareable_bytes: int
    published_bytes: int | None
    whole: bool = True
    limits: bool = False


def wish_of(
    allocated: AllocatedDevice, name: DeviceName, config: Document | None, of_class: Document | None = None
) -> Wish | None:
    """How the device is to be shared, None if it is not.

    ``config`` is the configuration that wins, ``of_class`` the last one of the device's class. Raises
    ClaimRefused for impossible amounts, a strategy that is not the device's, a division of what is not
    shared, and limits under which nothing runs. Admin access shares nothing.
    """
    if allocated.admin_access:
        return None
    asked = config if isinstance(config, GpuConfig | MigDeviceConfig) else GpuConfig()
    strategy, mps = asked.strategy, asked.mps
    if mps.active_thread_percentage == 0:
        raise ClaimRefused(
            f"request {allocated.request} limits MPS clients to 0 percent of the threads, which runs nothing",
            "set defaultActiveThreadPercentage to 1 to 100, or leave it out",
        )
    memory = asked.memory if isinstance(asked, GpuConfig) else None
    form = name.shared
    if form is None:
        if strategy is None and memory is not None and not memory.is_burst_alone:
            raise undivided(allocated.request, allocated.device)
        # What the instances of a partition do by themselves needs no setting: NVIDIA's driver says so, too.
        if strategy is None or (strategy == "TimeSlicing" and not name.kind.has_modes):
            return None
        return Wish(strategy, interval=_interval(config), mps=mps, memory=memory)
    if strategy not in (None, form.strategy):
        raise ClaimRefused(
            f"request {allocated.request} asks for sharing by {strategy}, and {allocated.device} is shared "
            f"by {form.strategy}",
            "use a class whose devices are shared so, or remove `sharing` from the opaque configuration",
        )
    if allocated.share_id is None:
        raise ClaimRefused(f"the allocation of {allocated.device}, which is shared, has no shareID", _ANEW)
    consumed = dict(allocated.consumed_capacity)
    share = read_share(form, consumed, allocated.device, DRIVER_NAME)
    if share.memory_bytes is not None and share.memory_bytes % MIB:
        raise ClaimRefused(
            f"the claim was given {share.memory_bytes} bytes of {allocated.device}, whose memory is given in "
            "whole MiB",
            _ANEW,
        )
    return Wish(
        form.strategy, form, share, _interval(config), mps, asked=strategy is not None,
        class_interval=_interval(of_class), memory=memory, burst=_burst(of_class),
    )  # fmt: skip


def undivided(request: str, device: str) -> ClaimRefused:
    """The refusal of a division of a device that its claim has for itself, and does not share."""
    return ClaimRefused(
        f"request {request} divides the memory of {device}, and does not have it shared among containers",
        "say sharing.strategy TimeSlicing beside `memory`, or ask for a share",
    )


def _burst(config: Document | None) -> Burst | None:
    """The burst that a class allows."""
    return config.memory.burst if isinstance(config, GpuConfig) and config.memory is not None else None


def _interval(config: Document | None) -> str:
    """The time-slice that a configuration asks for, empty for none."""
    return config.interval if isinstance(config, GpuConfig) and config.strategy == "TimeSlicing" else ""


def share_records(devices: Sequence[Shareable]) -> tuple[ShareRecord | None, ...]:
    """What the journal has to remember of each device's sharing; None if it is not shared.

    A fractional device that the claim took as a whole is not shared, unless its configuration asks for that.
    Raises ClaimRefused for limits above the share, for limits of devices that the claim does not have, and if
    one request needs two MPS daemons.
    """
    groups = _groups(devices)
    records = tuple(_record(one, groups, devices) for one in devices)
    _refuse_two_daemons(devices, records)
    return records


def _refuse_two_daemons(devices: Sequence[Shareable], records: Sequence[ShareRecord | None]) -> None:
    """Raise ClaimRefused where the devices of one request have more than one MPS daemon.

    All devices of a request reach the same container, and a process is a client of one control daemon
    only: the other device would be closed to it.
    """
    first: dict[str, tuple[str, str]] = {}
    for one, record in zip(devices, records, strict=True):
        if record is not None and record.strategy == "MPS":
            group, device = first.setdefault(one.request, (record.group, one.device))
            if group != record.group:
                raise ClaimRefused(
                    f"request {one.request} was given {device} and {one.device} to be used by MPS, and a "
                    "process can use MPS on one of them only",
                    "use a request for each, and give each container one of them",
                )


def _groups(devices: Sequence[Shareable]) -> Mapping[str, tuple[Shareable, ...]]:
    """By device, the whole GPUs that their claim shares as one by MPS, in the order of their UUIDs.

    CUDA sees one partition at a time, so that each has a daemon of its own.
    """
    alike: dict[MpsSettings, list[Shareable]] = {}
    for one in devices:
        wish = one.wish
        if wish is not None and _is_own(one, wish) and wish.strategy == "MPS" and one.whole:
            alike.setdefault(wish.mps, []).append(one)
    groups: dict[str, tuple[Shareable, ...]] = {}
    for members in alike.values():
        in_order = tuple(sorted(members, key=lambda one: one.uuid))
        groups |= dict.fromkeys((one.device for one in members), in_order)
    return groups


def _record(
    one: Shareable, groups: Mapping[str, tuple[Shareable, ...]], devices: Sequence[Shareable]
) -> ShareRecord | None:
    wish = one.wish
    if wish is None:
        return None
    if _has_all(one, wish) and not _is_own(one, wish):
        return None
    group = groups.get(one.device, (one,))
    asked_mib = _mib(_asked_bytes(one, wish.mps, group, devices))
    share = wish.share
    if wish.form is None or _is_own(one, wish):
        return ShareRecord(
            min(unshared_name(member.device) for member in group),
            wish.strategy,
            interval=wish.interval,
            active_thread_percentage=wish.mps.active_thread_percentage or 100,
            pinned_memory_mib=asked_mib or 0,
            multi_user=wish.mps.multi_user,
        )
    percentage, pinned_mib = _limits(one, wish.form, share) if wish.strategy == "MPS" else (100, 0)
    return ShareRecord(
        unshared_name(one.device),
        wish.strategy,
        share.shares or 0,
        share.memory_bytes or 0,
        _class_interval(one, wish),
        _tightened(one, wish.mps.active_thread_percentage, percentage, "percent of the threads"),
        _tightened(one, asked_mib, pinned_mib, "MiB of memory"),
        multi_user=wish.strategy == "MPS",  # the pods of other claims run as other users
    )


def _asked_bytes(
    one: Shareable, mps: MpsSettings, group: Sequence[Shareable], devices: Sequence[Shareable]
) -> int | None:
    """The memory limit that the configuration has for a device: its own, or that for all; None for none.

    A limit of its own names the device by its place among those of its daemon, or by a UUID; others of
    the claim that have the same configuration may be named, too.
    """
    names = {member.uuid: member.device for member in devices if _has(member, mps) and member.uuid}
    names |= {str(ordinal): member.device for ordinal, member in enumerate(group)}
    limit = mps.pinned_memory_bytes
    for key, limit_bytes in mps.pinned_memory_bytes_per_device:
        if key not in names:
            raise ClaimRefused(
                f"defaultPerDevicePinnedMemoryLimit names {key[:64]!r}, and the claim shares "
                f"{', '.join(sorted(names))} by this configuration",
                "name a device by its UUID, or by its place among the sorted UUIDs",
            )
        if names[key] == one.device:
            limit = limit_bytes
    return limit


def _has(member: Shareable, mps: MpsSettings) -> bool:
    return member.wish is not None and member.wish.mps == mps


def all_is_unknown(one: Shareable) -> bool:
    """Whether only the published memory, which was not seen yet, tells if the claim took all of a device.

    Of a device of which as much again is left, or a share, it certainly did not.
    """
    form = one.wish.form if one.wish else None
    if form is None or one.wish is None or not (form.fractional and form.memory):
        return False
    share, memory_bytes = one.wish.share, one.wish.share.memory_bytes or 0
    rest = one.memory_bytes - memory_bytes
    return share.shares == form.shares and one.published_bytes is None and 0 <= rest < memory_bytes


def _is_own(one: Shareable, wish: Wish) -> bool:
    """Whether the claim shares a device that it has for itself among its own pods."""
    return wish.form is None or (wish.asked and _has_all(one, wish))


def _has_all(one: Shareable, wish: Wish) -> bool:
    """Whether the claim has the device for itself: not a shared one, or all of a fractional one."""
    form, share = wish.form, wish.share
    if form is None:
        return True
    if not form.fractional:
        return False
    return share.shares == form.shares and (not form.memory or share.memory_bytes == one.published_bytes)


def _limits(one: Shareable, form: SharedForm, share: Share) -> tuple[int, int]:
    """Percent of the threads and MiB of memory that a share stands for."""
    if share.memory_bytes is not None and share.memory_bytes > one.memory_bytes:
        raise ClaimRefused(
            f"the claim was given {share.memory_bytes} bytes of {one.device}, which has {one.memory_bytes}",
            _ANEW,
        )
    memory = share.memory_bytes
    if form.shares is None or share.shares is None:
        return min(100, max(1, 100 * (memory or 0) // one.shareable_bytes)), (memory or 0) // MIB
    if memory is None:
        memory = one.shareable_bytes * share.shares // form.shares
    return max(1, 100 * share.shares // form.shares), memory // MIB


def _class_interval(one: Shareable, wish: Wish) -> str:
    """The time-slice that the class gives a share, empty for none.

    A GPU has one for all its shares. If claims decided, one tenant would set it for the others: so a claim
    that wants another one raises ClaimRefused.
    """
    if wish.strategy != "TimeSlicing":
        return ""
    given = wish.class_interval or "Default"
    if wish.interval not in ("", given):
        raise ClaimRefused(
            f"request {one.request} asks for time-slice {wish.interval} on {one.device}, which is shared, "
            f"and its class gives {given}",
            "leave the interval out, or use a class that has it",
        )
    return wish.class_interval


def _tightened(one: Shareable, asked: int | None, share: int, unit: str) -> int:
    """The limit that was asked for within the share, or the share's own."""
    if asked is None:
        return share
    if asked > share:
        raise ClaimRefused(
            f"request {one.request} asks for {asked} {unit} of {one.device}, and its share is {share}", _LOWER
        )
    return asked


def _mib(limit_bytes: int | None) -> int | None:
    return None if limit_bytes is None else limit_bytes // MIB
