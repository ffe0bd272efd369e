"""Refuses a share that what other claims hold of its GPU leaves no room for: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from driver.devices.sharing import split_shared_suffix
from driver.errors import DeviceHeld
from kubeletplugin.journal.entry import Entry, HeldDevice, ShareRecord

_LET_GO = "it is let go when that claim's pod has ended; delete the pod if it should not run"


def refuse_conflicts(
    uid: str, devices: Sequence[HeldDevice], memory_bytes: Sequence[int], holders: Iterable[Entry]
) -> None:
    """Raise DeviceHeld where the claim's shares do not go with those of other claims.

    ``memory_bytes`` is the memory of each device, 0 where it measures nothing. ``holders`` are the claims
    on the GPUs concerned. Two schedulers, or a pod that was deleted by force, can hand out more than there
    is; and a GPU has one time-slice at a time.
    """
    others = [entry for entry in holders if entry.uid != uid and not entry.rebuilt]
    for index, held in enumerate(devices):
        _, form = split_shared_suffix(held.device)
        if held.admin_access or form is None:
            continue
        # Shares that the claim has of the same device count as well, each with those before it.
        beside = [one for one in devices[:index] if one.device == held.device]
        taken = [*_of_others(held, others), *((None, one) for one in beside)]
        _refuse_overcommit(held, form.shares, memory_bytes[index], taken)
        if held.share is not None and held.share.interval:
            _refuse_other_interval(held, held.share, taken)


def _of_others(held: HeldDevice, others: Sequence[Entry]) -> list[tuple[Entry | None, HeldDevice]]:
    return [
        (entry, one)
        for entry in others
        for one in entry.devices
        if one.device == held.device and not one.admin_access
    ]


def _refuse_overcommit(
    held: HeldDevice, shares: int | None, memory_bytes: int, taken: Sequence[tuple[Entry | None, HeldDevice]]
) -> None:
    alone = next((entry for entry, one in taken if not _is_part(one)), None)
    if taken and (alone is not None or not _is_part(held)):
        raise DeviceHeld(
            f"all of {held.device} is for one claim alone, and {_whose(alone or taken[0][0])} has it, too",
            _LET_GO,
        )
    records = [one.share for one in (held, *(one for _, one in taken)) if one.share is not None]
    all_shares = sum(record.shares for record in records)
    all_memory = sum(record.memory_bytes for record in records)
    whose = ", ".join(sorted({_whose(entry) for entry, _ in taken if entry is not None}))
    if shares is not None and all_shares > shares:
        raise DeviceHeld(
            f"{held.device} has {shares} shares, and with those of {whose} {all_shares} would be used",
            _LET_GO,
        )
    if memory_bytes and all_memory > memory_bytes:
        raise DeviceHeld(
            f"{held.device} has {memory_bytes} bytes of memory, and with those of {whose} {all_memory} would "
            "be used",
            _LET_GO,
        )


def _is_part(held: HeldDevice) -> bool:
    return held.share is not None and held.share.is_part


def _refuse_other_interval(
    held: HeldDevice, share: ShareRecord, taken: Sequence[tuple[Entry | None, HeldDevice]]
) -> None:
    asked = interval_of(one.share for _, one in taken if one.share is not None)
    if taken and asked != share.interval:
        raise DeviceHeld(
            f"request {held.request} asks for time-slice {share.interval} on {held.device}, which has "
            f"{asked} for {_whose(taken[0][0])}: a GPU has one at a time",
            "leave the interval out, or wait until those shares are let go",
        )


def interval_of(records: Iterable[ShareRecord]) -> str:
    """The time-slice of a GPU with these shares: what one of them asks for, else Default."""
    return next((record.interval for record in records if record.interval), "Default")


def _whose(entry: Entry | None) -> str:
    return "this claim" if entry is None else f"claim {entry.namespace}/{entry.name} (UID {entry.uid})"
