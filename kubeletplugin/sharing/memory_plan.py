"""Works out the memory limits of a claim's containers on a GPU: pure, and refusals first.

A share is its claim's guarantee and its limit, unless the device's class allows a burst. A device that a
claim has for itself has no limit, unless its configuration divides it among the claim's containers.
"""

from __future__ import annotations

from driver.claims.opaque import Burst, MemoryDivision
from driver.devices.memory_limits import SMALLEST_LIMIT_BYTES
from driver.devices.sharing import SharedForm
from driver.errors import ClaimBlocked, ClaimRefused
from kubeletplugin.claims.journal.entry import MemoryRecord, ShareRecord
from kubeletplugin.sharing.plan import MIB, Shareable, undivided

_SMALLER = "give the containers less, or ask for a bigger share"


def memory_record(one: Shareable, share: ShareRecord | None) -> MemoryRecord | None:
    """What the containers of the claim are held to on this device, None for nothing.

    ``share`` is how the device is shared, None where it is not. Raises ClaimRefused for a share in which
    nothing runs, and for a division that does not fit; ClaimBlocked where a configuration asks for what the
    device is not published with.
    """
    if one.wish is None:
        return None
    division, burst = one.wish.memory, one.wish.burst
    if share is None:
        if division is not None and not division.is_burst_alone:
            raise undivided(one.request, one.device)
        return None
    if not share.is_part:
        burst = None  # there is nothing beyond all of a GPU
        if division is None:
            return None
    if not one.limits:
        if division is None and burst is None:
            return None
        raise ClaimBlocked(
            f"request {one.request} has a configuration for the memory of {one.device}, which the NVIDIA "
            "driver does not hold anybody to",
            "use a class that insists on the attribute memoryLimits, or leave `memory` out of the "
            "configuration",
        )
    return _record(one, share, division or MemoryDivision(), burst)


def share_bytes(share: ShareRecord, form: SharedForm | None, total_bytes: int) -> int:
    """The memory that a share stands for, of a device with so much; what is shared by number, in whole MiB.

    Equal shares are never more than the device together.
    """
    if share.memory_bytes:
        return share.memory_bytes
    if share.shares and form is not None and form.shares:
        return total_bytes * share.shares // form.shares // MIB * MIB
    return total_bytes


def _record(
    one: Shareable, share: ShareRecord, division: MemoryDivision, burst: Burst | None
) -> MemoryRecord:
    form = one.wish.form if one.wish else None
    guaranteed_bytes = share_bytes(share, form if share.is_part else None, one.shareable_bytes)
    if guaranteed_bytes > one.memory_bytes:
        raise ClaimRefused(
            f"the claim was given {guaranteed_bytes} bytes of {one.device}, which has {one.memory_bytes}",
            "delete the pod, so that it is scheduled anew",
        )
    if guaranteed_bytes < SMALLEST_LIMIT_BYTES:
        raise ClaimRefused(
            f"request {one.request} was given {guaranteed_bytes // MIB} MiB of {one.device}, and no program "
            f"starts on a GPU with less than {SMALLEST_LIMIT_BYTES // MIB} MiB",
            "ask for more memory, or for more shares",
        )
    _refuse_too_much(one, division, guaranteed_bytes)
    return MemoryRecord(
        guaranteed_bytes,
        _most_bytes(guaranteed_bytes, one.shareable_bytes, burst),
        burst is not None,
        division.each_bytes,
        dict(division.parts),
    )


def _refuse_too_much(one: Shareable, division: MemoryDivision, guaranteed_bytes: int) -> None:
    """Raise ClaimRefused if containers would get more than the claim, together or each."""
    named_bytes = sum(part for _, part in division.parts)
    has = f"and the claim has {guaranteed_bytes // MIB} MiB of {one.device}"
    if named_bytes > guaranteed_bytes:
        raise ClaimRefused(
            f"request {one.request} gives its containers parts of {named_bytes // MIB} MiB together, {has}",
            _SMALLER,
        )
    if division.each_bytes and named_bytes + division.each_bytes > guaranteed_bytes:
        beside = f" beside parts of {named_bytes // MIB} MiB" if named_bytes else ""
        raise ClaimRefused(
            f"request {one.request} gives each of its containers {division.each_bytes // MIB} MiB{beside}, "
            f"{has}",
            _SMALLER,
        )


def _most_bytes(guaranteed_bytes: int, shareable_bytes: int, burst: Burst | None) -> int:
    """The most that the claim ever has; of what is beyond its guarantee, only what no claim is guaranteed.

    NVML's soft limit reserves nothing: memory that another claim has taken is not given back to its owner.
    """
    if burst is None:
        return guaranteed_bytes
    if burst.factor is None:
        return max(guaranteed_bytes, shareable_bytes)
    return max(guaranteed_bytes, min(shareable_bytes, int(guaranteed_bytes * burst.factor)))
