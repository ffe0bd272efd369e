"""Decides whether all that NVIDIA's driver prepared on the node can be taken over: pure.

It is all or nothing. The pods of a claim that is left out could be unprepared by nobody: that driver is gone,
and this one does not know what was made for them. And once a part was taken over, that driver could not come
back for the rest, since it would go on with claims that are not its own any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from driver.errors import DriverError
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.migration.checkpoint import Checkpoint
from kubeletplugin.migration.entries import ClaimUser, NotConfirmed, Origin, Surroundings, entry_of, users_of
from kubeletplugin.migration.prepared import PreparedClaim


class CannotTakeOver(DriverError):
    """Claims that NVIDIA's driver prepared have to end before; the log's part names them and their pods."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The entries of the claims that are taken over, and the claims of an earlier boot, which have ended."""

    entries: tuple[Entry, ...] = ()
    ended: tuple[str, ...] = ()


def decide(checkpoint: Checkpoint, boot_id: str, look: Callable[[], Surroundings]) -> TakeOver:
    """What is to be done with the claims of a checkpoint.

    ``look`` looks at the node, and is asked only where there is something to compare; it raises DriverError.
    A boot ends every claim, as it does for NVIDIA's driver. One that did not write down its boot may have
    claims of an earlier one left: they are taken over as well, and let go once no container has them. Raises
    CannotTakeOver.
    """
    if checkpoint.boot_id and checkpoint.boot_id != boot_id:
        return TakeOver(ended=tuple(claim.uid for claim in checkpoint.claims))
    if not checkpoint.claims:
        return TakeOver()
    around = look()
    entries, refused, reasons = [], [], set()
    for claim in checkpoint.claims:
        try:
            entries.append(entry_of(claim, around))
        except NotConfirmed as reason:
            reasons.add(str(reason))
            refused.append(f"{_described(claim, around.users)}: {reason}")
    if refused:
        raise CannotTakeOver(
            f"{len(refused)} of {len(checkpoint.claims)} claims that NVIDIA's driver prepared on this node "
            f"cannot be taken over ({'; '.join(sorted(reasons))})",
            "let NVIDIA's driver run here until the pods have ended that the plugin's log names, or restart "
            "the node, which ends all",
            for_log="; ".join(refused),
        )
    return TakeOver(tuple(entries))


def origins(slices: Iterable[Mapping[str, Any]], node: str) -> dict[str, Origin]:
    """Which partitions the slices of NVIDIA's driver offer to be made, and which of an admin, by name.

    A partition that exists has a UUID there; one that is made on request consumes counters and has none.
    """
    found: dict[str, Origin] = {}
    for item in slices:
        spec = item.get("spec") or {}
        if (spec.get("pool") or {}).get("name") != node:
            continue
        for device in spec.get("devices") or ():
            attributes = device.get("attributes") or {}
            if (attributes.get("type") or {}).get("string") != "mig":
                continue
            if "uuid" in attributes:
                found[str(device.get("name"))] = "static"
            elif device.get("consumesCounters"):
                found[str(device.get("name"))] = "made"
    return found


def _described(claim: PreparedClaim, users: Iterable[ClaimUser]) -> str:
    """A claim by its name and its pods where they are known, for who has to end them."""
    found = users_of(claim, users)
    if found:
        pods = ", ".join(sorted({f"{one.namespace}/{one.pod}" for one in found}))
        return f"claim {found[0].namespace}/{found[0].claim} of pod {pods}"
    name = f"{claim.namespace}/{claim.name} " if claim.namespace and claim.name else ""
    pods = f" of pod {', '.join(claim.pods)}" if claim.pods else ""
    return f"claim {name}(UID {claim.uid}){pods}"
