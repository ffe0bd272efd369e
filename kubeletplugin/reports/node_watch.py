"""Tells the controller which devices claims hold and which places on GPUs are blocked.

What claims hold, and what they left behind, is sent soon after it changes. Obstacles by others, such as a GPU
instance that belongs to no claim, are found by checks of the hardware.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from driver.devices.node_state import BlockedPlacement, Hanging, Healed, NodeState
from driver.errors import StorageError
from driver.hardware.gpu import Gpu, Inventory
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Entry, is_live, standing
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.devices.kinds.kind import NodeKinds
from kubeletplugin.devices.kinds.registry import HELD_KINDS
from kubeletplugin.kubelet.wire.mps_daemon import MpsState

_log = get_logger("node state")

HANG_SECONDS = 300.0
"""How long shares stay blocked after a program hung for them: then a claim may try it again."""

_SILENT = "the MPS supervisor of the node does not answer"


class NodeWatch:
    """Keeps the node's state up to date; ``update`` gets each new state, from the thread in ``run``."""

    def __init__(
        self,
        journal: Journal,
        kinds: NodeKinds,
        update: Callable[[NodeState], None],
        again_seconds: float,
        settle_seconds: float = 0.0,
    ) -> None:
        self._journal = journal
        self._kinds = kinds
        self._update = update
        self._again_seconds = again_seconds
        self._settle_seconds = settle_seconds
        self._changed = threading.Condition()
        self._due = True
        self._stopped = False
        # What belongs to no claim, such as GPU instances that an admin made.
        self._foreign: tuple[BlockedPlacement, ...] = ()
        # The UIDs of ended claims whose partitions could not be destroyed yet.
        self._left_behind: set[str] = set()
        # The UIDs of claims that are giving their devices back now.
        self._releasing: set[str] = set()
        # The UIDs of claims that are gone from the API server while containers have their devices.
        self._deleted: frozenset[str] = frozenset()
        # Entries of claims that began to give their devices back since the last check of the hardware.
        self._released: list[Entry] = []
        # The MPS daemons, None while the supervisor does not answer; and whether that is known yet.
        self._daemons: tuple[MpsState, ...] | None = None
        self._daemons_known = False
        # GPUs for which programs of the driver hang.
        self._hanging: tuple[BlockedPlacement, ...] = ()
        # By program and GPUs, what it did not do for their shares, and when (monotonic clock).
        self._hangs: dict[tuple[Hanging, tuple[str, ...]], tuple[str, float]] = {}
        self._gpus: tuple[Gpu, ...] = ()
        # What pods have from device plugins.
        self._given: tuple[BlockedPlacement, ...] = ()
        # GPUs whose MIG mode is changing.
        self._busy: set[PciAddress] = set()
        # GPUs that are being reset, and those that were.
        self._healing: tuple[BlockedPlacement, ...] = ()
        self._healed: tuple[Healed, ...] = ()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Change what is known, under the lock, and wake the thread in ``run``."""
        with self._changed:
            yield
            self._due = True
            self._changed.notify_all()

    def mode_changes(self, pci: str, begins: bool) -> None:
        """Called when a change of a GPU's MIG mode begins or has ended."""
        address = PciAddress.parse(pci)
        with self._changing():
            if begins:
                self._busy.add(address)
            else:
                self._busy.discard(address)

    def claims_changed(self) -> None:
        """Called when a claim has taken or given back devices; it returns at once."""
        with self._changed:
            if not self._due:  # otherwise the thread is awake or about to be
                self._due = True
                self._changed.notify_all()

    @contextmanager
    def releasing(self, uid: str) -> Iterator[None]:
        """While a claim gives its devices back, its MPS daemon may be missing: the plugin itself ends it."""
        # The claim's entry is kept until the next check of the hardware, since one that is under way may
        # still have seen its devices.
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
        with self._changing():
            self._left_behind.add(uid)

    def deleted(self, uids: frozenset[str]) -> None:
        """Set all claims that are gone from the API server while containers have their devices."""
        with self._changing():
            self._deleted = uids

    def daemons(self, states: tuple[MpsState, ...] | None) -> None:
        """Set the states of the MPS control daemons; None while the supervisor does not answer."""
        with self._changing():
            self._daemons, self._daemons_known = states, True

    def hanging(self, blocked: tuple[BlockedPlacement, ...]) -> None:
        """Set the GPUs for which programs of the driver hang."""
        with self._changing():
            self._hanging = blocked

    def program_hangs(self, program: Hanging, gpus: tuple[str, ...], what: str) -> None:
        """Note that a program hung for shares of these GPUs; ``what`` is empty once it works for them."""
        if what:
            with self._changing():
                self._hangs[program, gpus] = what, time.monotonic()
        elif (program, gpus) in self._hangs:
            with self._changing():
                self._hangs.pop((program, gpus), None)

    def healing(self, blocked: tuple[BlockedPlacement, ...]) -> None:
        """Set the GPUs that are being reset or wait for that."""
        with self._changing():
            self._healing = blocked

    def healed(self, healed: tuple[Healed, ...]) -> None:
        """Set all GPUs that were reset, with the times."""
        with self._changed:
            if healed != self._healed:
                self._healed = healed
                self._due = True
                self._changed.notify_all()

    def given_elsewhere(self, blocked: tuple[BlockedPlacement, ...]) -> None:
        """Set what pods have from a device plugin."""
        with self._changed:
            if blocked != self._given:
                self._given = blocked
                self._due = True
                self._changed.notify_all()

    def saw(self, inventory: Inventory, before: Iterable[Entry]) -> None:
        """Take over a check of the hardware; ``before`` are the journal's entries from just before it."""
        with self._changed:
            released, self._released = self._released, []
        foreign = self.foreign(inventory, (*before, *released))
        # The thread is woken in any case: another instance of the plugin may have changed the journal.
        with self._changing():
            self._foreign = foreign
            self._gpus = inventory.gpus

    def foreign(self, inventory: Inventory, before: Iterable[Entry]) -> tuple[BlockedPlacement, ...]:
        """What somebody else made on the GPUs: it belonged to no claim before the check and to none now."""
        generation = self._journal.generation()
        owners = [
            held
            for entry in (*before, *self._journal.held())
            if entry.holds
            for held in entry.devices
            if is_live(entry, held, generation)
        ]
        return tuple(one for kind in self._kinds for one in kind.foreign(inventory, owners))

    def run(self) -> None:
        """Send every change until ``stop``; if the journal cannot be read, try again a little later."""
        wait_seconds = None
        while self._wait(wait_seconds):
            try:
                self._update(self.state())
                wait_seconds = None
            except StorageError as error:
                wait_seconds = self._again_seconds
                _log.warning(
                    "cannot read the state of the node", error=str(error), again_in_seconds=wait_seconds
                )

    def _wait(self, again_seconds: float | None) -> bool:
        """Wait for a change, but no longer than this; False after ``stop``."""
        with self._changed:
            self._changed.wait_for(lambda: self._due or self._stopped, again_seconds)
            # Changes come in bursts. One state for all of a pod's claims leaves the processor to the calls.
            self._changed.wait_for(lambda: self._stopped, self._settle_seconds)
            self._due = False
            return not self._stopped

    def state(self) -> NodeState:
        """The state as it is now; raises StorageError."""
        # The journal is read without the lock, which calls that change claims also take. It is read before
        # the daemons and after them, since a claim may come or give its share back in between.
        before = {entry.uid: entry for entry in self._journal.held()}
        with self._changed:
            foreign, left_behind = (*self._foreign, *self._given), frozenset(self._left_behind)
            releasing, deleted = frozenset(self._releasing), self._deleted
            daemons, daemons_known, hanging = self._daemons, self._daemons_known, self._hanging
            busy, healed, hanging = tuple(sorted(self._busy)), self._healed, (*hanging, *self._healing)
            hanging += hanging_shares(self._hangs, self._gpus, time.monotonic() - HANG_SECONDS)
        entries = self._journal.held()
        left = [entry for entry in entries if entry.uid in left_behind and entry.state == "releasing"]
        with self._changed:
            self._left_behind -= left_behind - {entry.uid for entry in left}
        down: tuple[BlockedPlacement, ...] = ()
        if daemons_known:
            staying = (one for one in entries if one == before.get(one.uid) and one.uid not in releasing)
            down = daemons_down(staying, daemons, self._journal.generation())
        held = {
            device.device
            for entry in entries
            if entry.holds
            for device in entry.devices
            if not device.admin_access
        }
        unknown = (
            *of_lost(entries),
            *of_another_driver(entries),
            *of_deleted([entry for entry in entries if entry.uid in deleted]),
        )
        blocked = (*foreign, *leftovers(left, self._journal), *unknown, *down, *hanging)
        return NodeState(tuple(sorted(held)), blocked, busy, healed=healed)

    def stop(self) -> None:
        """Make ``run`` return."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


def of_lost(entries: Iterable[Entry]) -> tuple[BlockedPlacement, ...]:
    """The GPUs of claims whose journal entry was lost."""
    return tuple(
        BlockedPlacement(
            PciAddress.parse(pci),
            None,
            "held-by-claim",
            f"claim {entry.owner} holds it, whose journal entry was lost",
        )
        for entry in entries
        if entry.state == "lost"
        for pci in entry.gpus
    )


def of_another_driver(entries: Iterable[Entry]) -> tuple[BlockedPlacement, ...]:
    """The places of devices of claims that another driver published and prepared."""
    # These claims name devices of that driver's slices. For the scheduler, the devices that this driver
    # publishes in the same places are others, and so are free.
    return tuple(
        BlockedPlacement(
            region.pci,
            region.span,
            "held-by-claim",
            f"claim {entry.owner} holds it as {held.published_as} of pool {held.pool}",
        )
        for entry in entries
        if entry.holds
        for held in entry.devices
        if held.published_as and not held.admin_access
        for region in HELD_KINDS.of(held).occupies(held)
    )


def of_deleted(entries: Iterable[Entry]) -> tuple[BlockedPlacement, ...]:
    """The places of devices that containers have from deleted claims: the scheduler counts them no more."""
    # They stay blocked after another load of the driver too: a claim that got the place would be refused.
    return tuple(
        BlockedPlacement(
            region.pci,
            region.span,
            "deleted-claim",
            f"a container still has {held.device} from claim {entry.owner}, which is deleted",
        )
        for entry in entries
        if entry.holds
        for held in entry.devices
        if not held.admin_access
        for region in HELD_KINDS.of(held).occupies(held)
    )


def leftovers(entries: Iterable[Entry], journal: Journal) -> tuple[BlockedPlacement, ...]:
    """The places of what ended claims left behind."""
    return tuple(
        BlockedPlacement(
            region.pci,
            region.span,
            "in-use",
            f"{held.device} of claim {entry.owner}, which has ended, could not be destroyed yet",
        )
        for entry in entries
        for held in entry.devices
        if journal.is_live(entry, held) and HELD_KINDS.of(held).is_made(held)
        for region in HELD_KINDS.of(held).occupies(held)
    )


def hanging_shares(
    hangs: Mapping[tuple[Hanging, tuple[str, ...]], tuple[str, float]],
    gpus: Sequence[Gpu],
    since: float,
) -> tuple[BlockedPlacement, ...]:
    """The GPUs whose shares cannot be set up, by the hangs since a time.

    A program may hang because of the GPU that it works for. But NVIDIA's programs open every GPU, so all are
    concerned if a second one hangs, or if the program hung for two groups of GPUs.
    """
    young = {key: what for key, (what, at) in hangs.items() if at > since}
    groups = Counter(program for program, _ in young)
    hung = {gpu.pci for gpu in gpus if any(problem.reason == "hung" for problem in gpu.problems)}
    found = {
        (program, pci): BlockedPlacement(pci, None, program, what)
        for (program, group), what in young.items()
        for pci in (
            [gpu.pci for gpu in gpus]
            if groups[program] > 1 or not hung.issubset(map(PciAddress.parse, group))
            else map(PciAddress.parse, group)
        )
    }
    return tuple(found.values())


def daemons_down(
    entries: Iterable[Entry], states: Sequence[MpsState] | None, generation: str
) -> tuple[BlockedPlacement, ...]:
    """The MPS shares whose daemon does not serve; ``states`` is None if the supervisor does not answer."""
    by_name = None if states is None else {state.name: state for state in states}
    found: dict[str, BlockedPlacement] = {}
    for entry in entries:
        if not standing(entry, generation).is_prepared:
            continue
        for held in entry.devices:
            share = held.share
            why = _why(share.group, by_name) if share is not None and share.strategy == "MPS" else ""
            if why:
                for region in HELD_KINDS.of(held).occupies(held):
                    found[held.device] = BlockedPlacement(
                        region.pci, region.span, "mps-daemon", f"{held.device}: {why}"
                    )
    return tuple(found[device] for device in sorted(found))


def _why(group: str, states: Mapping[str, MpsState] | None) -> str:
    """Why the group's daemon does not serve, empty if it does."""
    if states is None:
        return _SILENT
    state = states.get(group)
    if state is None:
        return "its MPS control daemon does not exist"
    return "" if state.running else f"its MPS control daemon does not serve: {state.message}"
