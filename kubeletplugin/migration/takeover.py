"""Takes the place of NVIDIA's driver on a node: waits until that is possible, then takes its claims over.

Two drivers of one name on a node would both be called by the kubelet, one after the other, and each would
hand out GPUs that the other holds. So as long as another one answers, or has left claims that cannot be taken
over, the plugin opens no socket: the kubelet does not know it, nothing is published, and nothing on the disk
changes.

It is all or nothing. The pods of a claim that is left out could be unprepared by nobody: that driver is gone,
and this one does not know what was made for them. And once a part was taken over, that driver could not come
back for the rest, since it would go on with claims that are not its own any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driver.errors import DriverError
from driver.process.durable import remove
from driver.process.log import get_logger
from driver.process.stamp import stamp_of
from kubeletplugin.claims.cdi.store import CdiStore
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.migration.checkpoint import Checkpoint
from kubeletplugin.migration.entries import ClaimUser, NotConfirmed, Origin, Surroundings, entry_of, users_of
from kubeletplugin.migration.prepared import PreparedClaim

_log = get_logger("predecessor")

_YOUNG = "young"


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


def take_over_claims(
    decided: TakeOver, checkpoint: Path, store: CdiStore, adopt: Callable[[Entry], bool]
) -> tuple[str, ...]:
    """Have ``adopt`` take the claims over, then drop the checkpoint; returns the UIDs of the claims.

    None where another instance has done it before. Each step may be the last before a crash: the checkpoint
    goes last, so the next start decides again and finds in the journal what was done already. Callers let
    only one instance at a time in here. Raises DriverError; the next start goes on.
    """
    if not checkpoint.exists():
        return ()
    taken = tuple(entry.uid for entry in decided.entries if adopt(entry))
    for uid in decided.ended:
        store.remove_former(uid)
    remove(checkpoint)
    _log.warning(
        "claims of NVIDIA's driver taken over",
        claims=[entry.owner for entry in decided.entries],
        ended_with_an_earlier_boot=len(decided.ended),
    )
    return taken


@dataclass(frozen=True, slots=True)
class WaitPorts:
    """What is asked while the plugin waits.

    ``other()`` is a socket at which another driver answers, None without one. ``decide()`` says what is to be
    done with the claims in the checkpoint; it raises DriverError. ``tell(text)`` posts an event of the node.
    ``wait(seconds)`` waits. ``clock()`` is in seconds.
    """

    other: Callable[[], Path | None]
    decide: Callable[[], TakeOver]
    tell: Callable[[str], None]
    wait: Callable[[float], object]
    clock: Callable[[], float]


def wait_for_takeover(ports: WaitPorts, checkpoint: Path, look_seconds: float) -> TakeOver:
    """Return what is to be taken over, once no other driver is there and all of it can be.

    The sockets are looked at every second, the claims when the checkpoint was written and every
    ``look_seconds``: what of the hardware and the cluster stands in the way may pass.
    """
    waiting = _Waiting(ports, checkpoint, look_seconds)
    while (decided := waiting.look()) is None:
        ports.wait(min(1.0, look_seconds))
    return decided


class _Waiting:
    def __init__(self, ports: WaitPorts, checkpoint: Path, look_seconds: float) -> None:
        self._ports = ports
        self._checkpoint = checkpoint
        self._look_seconds = look_seconds
        self._seen: tuple[object, float] | None = None
        self._decided: TakeOver | None = None
        self._error: DriverError | None = None
        self._told = ""

    def look(self) -> TakeOver | None:
        """What is to be taken over, None while that cannot be."""
        # Before the checkpoint: once the other driver is gone, nobody writes it any more.
        other = self._ports.other()
        self._decide()
        if other is None and self._decided is not None:
            return self._decided
        if other is not None or self._error is not None:
            self._tell(other)
        return None

    def _decide(self) -> None:
        """Decide about the claims anew where something may have changed since the last time."""
        stamp, now = self._stamp(), self._ports.clock()
        if stamp == _YOUNG:
            self._seen = self._decided = self._error = None
            return
        if self._seen is not None and self._seen[0] == stamp and now < self._seen[1] + self._look_seconds:
            return
        self._seen = stamp, now
        try:
            self._decided, self._error = self._ports.decide(), None
        except DriverError as error:
            self._decided, self._error = None, error

    def _stamp(self) -> object:
        """What tells the checkpoint from a later one; it is young while a later one could look the same."""
        try:
            return stamp_of(self._checkpoint) or _YOUNG
        except FileNotFoundError:
            return None
        except OSError as error:
            return str(error)

    def _tell(self, other: Path | None) -> None:
        """Say what is in the way, once for each other thing."""
        said = []
        if other is not None:
            said.append(
                f"another driver of the name gpu.nvidia.com answers at {other} on this node, so this one "
                "waits: remove NVIDIA's driver from the node"
            )
        if self._error is not None:
            said.append(f"{self._error.what}: {self._error.way_out}")
        text = "; ".join(said)
        if text == self._told:
            return
        self._told = text
        held = [entry.owner for entry in self._decided.entries] if self._decided else []
        in_the_way = self._error.logged if self._error else ""
        self._ports.tell(text)
        _log.warning("waits for NVIDIA's driver", reason=text, in_the_way=in_the_way, can_be_taken_over=held)
