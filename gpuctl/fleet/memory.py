"""Reads from the status of claims how much GPU memory they may use and do use: by GPU, and by share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from driver.devices.names import DRIVER_NAME

Object = Mapping[str, Any]

GpuKey = tuple[str, int | None]
"""A GPU: its PCI address, or the device's name if that is not published, and its index."""

_LIMIT, _USED = "memoryLimitBytes", "memoryUsedBytes"
_NOT_HELD = "MemoryLimitNotHeld"


@dataclass(frozen=True, slots=True)
class ShareMemory:
    """The memory limit that the NVIDIA driver enforces for a claim on a GPU.

    ``claim`` is the claim's namespace and name, ``held_bytes`` its limit. ``used_bytes`` is None if its
    status does not say. ``not_held`` says why its limit is not enforced, None if it is.
    """

    claim: str
    device: str
    held_bytes: int
    share_id: str | None = None
    used_bytes: int | None = None
    not_held: str | None = None


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """The shares of one GPU that have a memory limit in the status of their claim.

    ``held_bytes`` is the sum of their limits. ``used_bytes`` is None if one of them does not say.
    """

    gpu: str
    held_bytes: int
    shares: tuple[ShareMemory, ...]
    used_bytes: int | None = None
    index: int | None = None


def gpu_memory(
    pools: frozenset[str], gpus: Mapping[str, GpuKey], claims: Iterable[Object]
) -> list[GpuMemory]:
    """The memory of the GPUs of a node, sorted; ``pools`` are its pools, ``gpus`` the GPUs of its devices."""
    found: defaultdict[GpuKey, list[ShareMemory]] = defaultdict(list)
    for claim in claims:
        for entry in (claim.get("status") or {}).get("devices") or ():
            if entry.get("driver") == DRIVER_NAME and entry.get("pool") in pools:
                share = _share(claim, entry)
                if share is not None:
                    found[gpus.get(share.device, (share.device, None))].append(share)
    return [
        GpuMemory(
            gpu,
            sum(one.held_bytes for one in shares),
            tuple(sorted(shares, key=lambda one: (one.claim, one.device, one.share_id or ""))),
            _sum(one.used_bytes for one in shares),
            index,
        )
        for (gpu, index), shares in sorted(found.items(), key=lambda item: item[0][0])
    ]


def memory_lines(node: str, memory: Iterable[GpuMemory], *, wide: bool) -> Iterator[str]:
    """A line for each GPU of a node; ``wide`` adds one for each share below it."""
    for one in memory:
        gpu = one.gpu if one.index is None else f"GPU {one.index} ({one.gpu})"
        number = len(one.shares)
        shares = "1 share" if number == 1 else f"{number} shares"
        yield f"{node}: {gpu}: {shares}, {_words(one.held_bytes, one.used_bytes)}"
        for share in one.shares if wide else ():
            yield f"  {share.claim}, {share.device}: {_words(share.held_bytes, share.used_bytes)}"


def not_held(memory: Iterable[GpuMemory]) -> Iterator[str]:
    """A sentence for each share whose limit is not enforced."""
    for share in (share for one in memory for share in one.shares):
        if share.not_held is not None:
            yield f"{share.claim}, {share.device}: its memory limit is not enforced: {share.not_held}"


def bytes_text(amount_bytes: int) -> str:
    """An amount for people, with at most one digit behind the point: ``10Gi``, ``7.2Gi``."""
    for suffix, unit in (("Gi", 1 << 30), ("Mi", 1 << 20)):
        if amount_bytes >= unit:
            return f"{amount_bytes / unit:.1f}".removesuffix(".0") + suffix
    return f"{amount_bytes / 1024:.1f}".removesuffix(".0") + "Ki" if amount_bytes else "0"


def held_text(part: float, memory_bytes: int | None) -> str:
    """What a claim has of a GPU: its memory, or its part in percent if the memory is not known."""
    return f"{100 * part:.0f}%" if memory_bytes is None else bytes_text(memory_bytes)


def _words(held_bytes: int, used_bytes: int | None) -> str:
    used = "" if used_bytes is None else f", uses {bytes_text(used_bytes)}"
    return f"held {bytes_text(held_bytes)}{used}"


def _share(claim: Object, entry: Object) -> ShareMemory | None:
    """What an entry of ``status.devices`` says; None if it has no limit."""
    data = entry.get("data")
    held_bytes = _amount(data, _LIMIT)
    if held_bytes is None:
        return None
    metadata = claim["metadata"]
    false = (
        str(one.get("message") or one.get("reason") or "no reason given")
        for one in entry.get("conditions") or ()
        if one.get("reason") == _NOT_HELD and one.get("status") == "False"
    )
    return ShareMemory(
        f"{metadata.get('namespace') or ''}/{metadata['name']}",
        str(entry["device"]),
        held_bytes,
        entry.get("shareID"),
        _amount(data, _USED),
        next(false, None),
    )


def _amount(data: Any, name: str) -> int | None:
    # Any object may be there; and for Python True is an int as well.
    value = data.get(name) if isinstance(data, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _sum(amounts: Iterable[int | None]) -> int | None:
    """The sum; None if one of the amounts is not known."""
    found = list(amounts)
    known = [amount for amount in found if amount is not None]
    return sum(known) if len(known) == len(found) else None
