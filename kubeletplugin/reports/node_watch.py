"""Finds out which devices claims hold and which places on GPUs are blocked, for the controller.

What claims hold, and what they left behind, is sent soon after it changes. What somebody else put in the way
is found by checks of the hardware: a GPU instance that no claim accounts for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from driver.devices.node_state import BlockedPlacement, Healed, NodeState
from driver.errors import StorageError
from driver.hardware.gpu import Inventory
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.devices.kinds.kind import HeldKinds
from kubeletplugin.kubelet.wire.mps_daemon import MpsState

_log = get_logger("node state")

_SILENT = "the MPS supervisor of the node does not answer"


class NodeWatch:
    """Keeps the node's state up to date; ``update`` gets each new one, from the thread in ``run``."""

    def __init__(
        self,
        journal: Journal,
        era: Callable[[], Era],
        kinds: HeldKinds,
        update: Callable[[NodeState], None],
        again_seconds: float,
        settle_seconds: float = 0.0,
    ) -> None:
        self._journal = journal
        self._era = era
        self._kinds = kinds
        self._update = update
        self._again_seconds = again_seconds
        self._settle_seconds = settle_seconds
        self._changed = threading.Condition()
        self._due = True
        self._stopped = False
        self._foreign: tuple[BlockedPlacement, ...] = ()
        self._left_behind: set[str] = set()
        self._releasing: set[str] = set()
        self._deleted: frozenset[str] = frozenset()
        self._released: list[Entry] = []
        self._daemons: tuple[MpsState, ...] | None = None
        self._daemons_told = False
        self._hanging: tuple[BlockedPlacement, ...] = ()
        self._given: tuple[BlockedPlacement, ...] = ()
        self._busy: set[PciAddress] = set()
        self._healing: tuple[BlockedPlacement, ...] = ()
        self._healed: tuple[Healed, ...] = ()

    def mode_changes(self, pci: str, begins: bool) -> None:
        """Called when a change of a GPU's MIG mode begins or has ended."""
        address = PciAddress.parse(pci)
        with self._changed:
            if begins:
                self._busy.add(address)
            else:
                self._busy.discard(address)
            self._due = True
            self._changed.notify_all()

    def claims_changed(self) -> None:
        """Called when a claim has taken or given back devices; costs the caller next to nothing."""
        with self._changed:
            if not self._due:  # else it is awake, or about to be
                self._due = True
                self._changed.notify_all()

    @contextmanager
    def releasing(self, uid: str) -> Iterator[None]:
        """While a claim gives its devices back, its MPS daemon is not missed: the plugin itself ends it.

        What the claim had is known until the next check of the hardware, since one under way may have seen
        it.
        """
        entry = self._journal.get(uid)
        with self._changed:
            self._releasing.add(uid)
            if entry is not None:
                self._released.append(entry)
        try:
            yield
        finally:
            with self._changed:
                self._releasing.discard(uid)
            self.claims_changed()

    def left_behind(self, uid: str) -> None:
        """Called when a claim has ended and not all of its partitions could be destroyed."""
        with self._changed:
            self._left_behind.add(uid)
            self._due = True
            self._changed.notify_all()

    def deleted(self, uids: frozenset[str]) -> None:
        """Takes the claims that are gone from the API while containers have their devices, all of them."""
        with self._changed:
            self._deleted = uids
            self._due = True
            self._changed.notify_all()

    def daemons(self, states: tuple[MpsState, ...] | None) -> None:
        """Takes the states of the MPS control daemons; None while the supervisor is silent."""
        with self._changed:
            self._daemons, self._daemons_told = states, True
            self._due = True
            self._changed.notify_all()

    def hanging(self, blocked: tuple[BlockedPlacement, ...]) -> None:
        """Takes the GPUs for which programs of the driver do not end."""
        with self._changed:
            self._hanging = blocked
            self._due = True
            self._changed.notify_all()

    def healing(self, blocked: tuple[BlockedPlacement, ...]) -> None:
        """Takes the GPUs that are being reset or wait for that, none when it has ended."""
        with self._changed:
            self._healing = blocked
            self._due = True
            self._changed.notify_all()

    def healed(self, healed: tuple[Healed, ...]) -> None:
        """Takes the times when GPUs were last reset, all of them."""
        with self._changed:
            if healed != self._healed:
                self._healed = healed
                self._due = True
                self._changed.notify_all()

    def given_elsewhere(self, blocked: tuple[BlockedPlacement, ...]) -> None:
        """Takes what pods have from a device plugin."""
        with self._changed:
            if blocked != self._given:
                self._given = blocked
                self._due = True
                self._changed.notify_all()

    def saw(self, inventory: Inventory, before: Iterable[Entry]) -> None:
        """Takes a check of the hardware; ``before`` are the journal's entries just before it."""
        with self._changed:
            released, self._released = self._released, []
        foreign = self.foreign(inventory, (*before, *released))
        with self._changed:
            self._foreign = foreign
            # In any case: another instance may have changed the journal, and told nobody here.
            self._due = True
            self._changed.notify_all()

    def foreign(self, inventory: Inventory, before: Iterable[Entry]) -> tuple[BlockedPlacement, ...]:
        """What somebody else made on the GPUs: no claim before the check or now accounts for it."""
        era = self._era()
        owners = [
            held
            for entry in (*before, *self._journal.held())
            if entry.holds
            for held in entry.devices
            if entry.rebuilt or self._kinds.is_live(entry, held, era)
        ]
        return tuple(one for kind in self._kinds for one in kind.foreign(inventory, owners))

    def run(self) -> None:
        """Pass on every change until ``stop``; a journal that cannot be read is read again a little later."""
        wait_seconds = None
        while self._wait(wait_seconds):
            try:
                self._update(self.state())
                wait_seconds = None
            except StorageError as error:
                wait_seconds = self._again_seconds
                _log.warning("the node's state is not known", error=str(error), again_in_seconds=wait_seconds)

    def _wait(self, again_seconds: float | None) -> bool:
        """Wait for a change, or no longer than that; False when it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._due or self._stopped, again_seconds)
            # Changes come in bursts: one look for all of a pod's claims keeps the processor free for them.
            self._changed.wait_for(lambda: self._stopped, self._settle_seconds)
            self._due = False
            return not self._stopped

    def state(self) -> NodeState:
        """The state as it is now. Raises StorageError.

        The journal is read without the lock, which those who change claims take to say so. It is read before
        the daemons and after: between the two a claim may have come, or given its share back.
        """
        before = {entry.uid: entry for entry in self._journal.held()}
        with self._changed:
            foreign, left_behind = (*self._foreign, *self._given), frozenset(self._left_behind)
            releasing, deleted = frozenset(self._releasing), self._deleted
            daemons, daemons_told, hanging = self._daemons, self._daemons_told, self._hanging
            busy, healed, hanging = tuple(sorted(self._busy)), self._healed, (*hanging, *self._healing)
        entries, era = self._journal.held(), self._era()
        left = [entry for entry in entries if entry.uid in left_behind and entry.state == "releasing"]
        with self._changed:
            self._left_behind -= left_behind - {entry.uid for entry in left}
        down: tuple[BlockedPlacement, ...] = ()
        if daemons_told:
            staying = (one for one in entries if one == before.get(one.uid) and one.uid not in releasing)
            down = daemons_down(staying, daemons, era, self._kinds)
        held = {
            device.device
            for entry in entries
            if entry.holds
            for device in entry.devices
            if not device.admin_access
        }
        unknown = (
            *of_another_driver(entries, self._kinds),
            *of_deleted([entry for entry in entries if entry.uid in deleted], self._kinds),
        )
        blocked = (*foreign, *leftovers(left, era, self._kinds), *unknown, *down, *hanging)
        return NodeState(tuple(sorted(held)), blocked, busy, healed=healed)

    def stop(self) -> None:
        """Make ``run`` return."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


def of_another_driver(entries: Iterable[Entry], kinds: HeldKinds) -> tuple[BlockedPlacement, ...]:
    """The places of devices of claims that another driver published and prepared.

    A scheduler forgot these claims with the slices of that driver, and to it the devices published there now
    are different ones.
    """
    return tuple(
        BlockedPlacement(
            region.pci,
            region.span,
            "held-by-claim",
            f"claim {entry.owner} has it as {held.published_as} of pool {held.pool}",
        )
        for entry in entries
        if entry.holds
        for held in entry.devices
        if held.published_as and not held.admin_access
        for region in kinds.of(held).occupies(held)
    )


def of_deleted(entries: Iterable[Entry], kinds: HeldKinds) -> tuple[BlockedPlacement, ...]:
    """The places of devices that containers have from claims that are gone: a scheduler forgot them.

    Another load of the driver changes nothing here: a claim that is given the place is refused all the same.
    """
    return tuple(
        BlockedPlacement(
            region.pci,
            region.span,
            "deleted-claim",
            f"{held.device} is in a container's hands from claim {entry.owner}, which is deleted",
        )
        for entry in entries
        if entry.holds
        for held in entry.devices
        if not held.admin_access
        for region in kinds.of(held).occupies(held)
    )


def leftovers(entries: Iterable[Entry], era: Era, kinds: HeldKinds) -> tuple[BlockedPlacement, ...]:
    """The places of what ended claims left behind, by their entries."""
    return tuple(
        BlockedPlacement(
            region.pci,
            region.span,
            "in-use",
            f"{held.device} is left from claim {entry.owner} and could not be destroyed yet",
        )
        for entry in entries
        for held in entry.devices
        if kinds.is_live(entry, held, era) and kinds.of(held).is_made(held)
        for region in kinds.of(held).occupies(held)
    )


def daemons_down(
    entries: Iterable[Entry], states: Sequence[MpsState] | None, era: Era, kinds: HeldKinds
) -> tuple[BlockedPlacement, ...]:
    """What is blocked on GPUs with MPS shares; ``states`` is None while the supervisor is silent."""
    told = None if states is None else {state.name: state for state in states}
    found: dict[str, BlockedPlacement] = {}
    for entry in entries:
        if not kinds.standing(entry, era).is_prepared:
            continue
        for held in entry.devices:
            share = held.share
            why = _why(share.group, told) if share is not None and share.strategy == "MPS" else ""
            if why:
                for region in kinds.of(held).occupies(held):
                    found[held.device] = BlockedPlacement(
                        region.pci, region.span, "mps-daemon", f"{held.device}: {why}"
                    )
    return tuple(found[device] for device in sorted(found))


def _why(group: str, told: Mapping[str, MpsState] | None) -> str:
    """Why the group's daemon does not serve, empty when it does."""
    if told is None:
        return _SILENT
    state = told.get(group)
    if state is None:
        return "its MPS control daemon is not there"
    return "" if state.running else f"its MPS control daemon does not serve: {state.message}"
