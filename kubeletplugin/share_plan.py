"""Works out how a claim's devices are shared and what the claim may use of them: pure, and refusals first.

A device is shared either because it is offered so, each claim with a share of its own, or because its
claim's configuration says so: then the pods of that one claim share a device that is the claim's alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driver.claims import AllocatedDevice
from driver.errors import ClaimRefused
from driver.names import DRIVER_NAME, DeviceName, unshared_name
from driver.opaque import GpuConfig, MigDeviceConfig, MpsSettings
from driver.sharing import Share, SharedForm, Strategy, read_share
from kubeletplugin.entry import ShareRecord

MIB = 1 << 20

_ANEW = "delete the pod, so that it is scheduled anew"
_NOTHING, _NO_LIMITS = Share(), MpsSettings()
_LOWER = "ask for no more than the share, or leave the limit out"


@dataclass(frozen=True, slots=True)
class Wish:
    """How one device is to be shared.

    ``form`` is how it is offered and ``share`` what the claim took of it, both None where the claim has
    the device for itself. ``interval`` is the time-slice that was asked for, empty where nothing was.
    """

    strategy: Strategy
    form: SharedForm | None = None
    share: Share = _NOTHING
    interval: str = ""
    mps: MpsSettings = _NO_LIMITS


@dataclass(frozen=True, slots=True)
class Shareable:
    """One device with what its limits depend on.

    ``memory_bytes`` is its memory, ``published_bytes`` as its slice has it, None where that was never seen.
    ``uuid`` is what limits by device can name it by, empty for a partition that is not made yet.
    """

    device: str
    request: str
    wish: Wish | None
    uuid: str
    memory_bytes: int
    published_bytes: int | None


def wish_of(
    allocated: AllocatedDevice, name: DeviceName, config: GpuConfig | MigDeviceConfig | None
) -> Wish | None:
    """How the device is to be shared, None where nothing has to be done for that.

    ``config`` is the one that wins. Raises ClaimRefused for amounts that cannot be, a strategy that is not
    the device's, and limits that let nothing run. Admin access looks on and shares nothing.
    """
    if allocated.admin_access:
        return None
    strategy = config.strategy if config else None
    mps = config.mps if config else MpsSettings()
    if mps.active_thread_percentage == 0:
        raise ClaimRefused(
            f"request {allocated.request} limits MPS clients to 0 percent of the threads, which runs nothing",
            "set defaultActiveThreadPercentage to 1 to 100, or leave it out",
        )
    interval = config.interval if isinstance(config, GpuConfig) and strategy == "TimeSlicing" else ""
    form = name.shared
    if form is None:
        # What the instances of a partition do by themselves needs no setting: NVIDIA's driver says so, too.
        if strategy is None or (strategy == "TimeSlicing" and name.profile is not None):
            return None
        return Wish(strategy, interval=interval, mps=mps)
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
    return Wish(form.strategy, form, share, interval, mps)


def refuse_two_daemons(devices: Sequence[tuple[str, str, Wish | None]]) -> None:
    """Raise ClaimRefused where one request was given MPS shares of two devices.

    ``devices`` are request, device and wish. All devices of a request reach the same container, and a
    process is a client of one control daemon only: the other device would be closed to it.
    """
    first: dict[str, str] = {}
    for request, device, wish in devices:
        if wish is not None and wish.form is not None and wish.strategy == "MPS":
            other = first.setdefault(request, device)
            if other != device:
                raise ClaimRefused(
                    f"request {request} was given MPS shares of {other} and {device}, and a process can use "
                    "MPS on one of them only",
                    "use a request for each, and give each container one of them",
                )


def share_records(devices: Sequence[Shareable]) -> tuple[ShareRecord | None, ...]:
    """What the journal has to remember of each device's sharing; None where it is not shared.

    A fractional device of which the claim took everything is not. Raises ClaimRefused for limits above
    the share, and for limits of devices that the claim has not.
    """
    groups = _groups(devices)
    return tuple(_record(one, groups) for one in devices)


def _groups(devices: Sequence[Shareable]) -> Mapping[str, tuple[Shareable, ...]]:
    """By device, those that its claim shares as one by MPS, in the order of their UUIDs."""
    alike: dict[MpsSettings, list[Shareable]] = {}
    for one in devices:
        if one.wish is not None and one.wish.form is None and one.wish.strategy == "MPS" and one.uuid:
            alike.setdefault(one.wish.mps, []).append(one)
    groups: dict[str, tuple[Shareable, ...]] = {}
    for members in alike.values():
        in_order = tuple(sorted(members, key=lambda one: one.uuid))
        groups |= dict.fromkeys((one.device for one in members), in_order)
    return groups


def _record(one: Shareable, groups: Mapping[str, tuple[Shareable, ...]]) -> ShareRecord | None:
    wish = one.wish
    if wish is None or _is_all(one, wish):
        return None
    if wish.form is None:
        return _own_record(one, wish, groups.get(one.device, (one,)))
    share = wish.share
    percentage, pinned_mib = _limits(one, wish.form, share) if wish.strategy == "MPS" else (100, 0)
    return ShareRecord(
        unshared_name(one.device),
        wish.strategy,
        share.shares or 0,
        share.memory_bytes or 0,
        wish.interval,
        _tightened(one, wish.mps.active_thread_percentage, percentage, "percent of the threads"),
        _tightened(one, _mib(wish.mps.pinned_memory_bytes), pinned_mib, "MiB of memory"),
        multi_user=wish.strategy == "MPS",  # the pods of other claims run as other users
    )


def _own_record(one: Shareable, wish: Wish, group: tuple[Shareable, ...]) -> ShareRecord:
    """The record of a device that is shared within its claim."""
    return ShareRecord(
        min(member.device for member in group),
        wish.strategy,
        interval=wish.interval,
        active_thread_percentage=wish.mps.active_thread_percentage or 100,
        pinned_memory_mib=_own_limit(one, wish.mps, group),
        multi_user=wish.mps.multi_user,
    )


def _own_limit(one: Shareable, mps: MpsSettings, group: tuple[Shareable, ...]) -> int:
    """The memory limit that the configuration has for a device: its own, or that for all; 0 for none."""
    names: dict[str, str] = {str(ordinal): member.device for ordinal, member in enumerate(group)}
    names |= {member.uuid: member.device for member in group if member.uuid}
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
    return _mib(limit) or 0


def _is_all(one: Shareable, wish: Wish) -> bool:
    """Whether the claim took all of a fractional device, so that nobody can join it."""
    form, share = wish.form, wish.share
    if form is None or not form.fractional:
        return False
    return share.shares == form.shares and (not form.memory or share.memory_bytes == one.published_bytes)


def _limits(one: Shareable, form: SharedForm, share: Share) -> tuple[int, int]:
    """Percent of the threads and MiB of memory that a share stands for."""
    total = one.memory_bytes
    if share.memory_bytes is not None and share.memory_bytes > total:
        raise ClaimRefused(
            f"the claim was given {share.memory_bytes} bytes of {one.device}, which has {total}", _ANEW
        )
    memory = share.memory_bytes
    if form.shares is None or share.shares is None:
        return max(1, 100 * (memory or 0) // total), (memory or 0) // MIB
    if memory is None:
        memory = total * share.shares // form.shares
    return max(1, 100 * share.shares // form.shares), memory // MIB


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
