"""Refuses a share for which other claims leave no room on its GPU: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from driver.devices.sharing import split_shared_suffix
from driver.errors import DeviceHeld
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, ShareRecord
from kubeletplugin.sharing.share_amounts import share_bytes

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
