"""Keeps the sharing of GPUs as the journal says, after crashes and when daemons or their supervisor end.

It finishes what an interrupted prepare or unprepare left, and ends daemons without a share. It also reports
the states of the daemons, and GPUs for which a program of the driver hangs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial

from driver.devices.node_state import BlockedPlacement
from driver.errors import DriverError
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, gpu_key
from kubeletplugin.devices.host.driver_programs import ProgramHangs
from kubeletplugin.devices.kinds.kind import HeldKinds
from kubeletplugin.kubelet.wire.mps_daemon import MpsState
from kubeletplugin.sharing.claim_sharing import ClaimShares, groups_of
from kubeletplugin.sharing.gpus import Sharing
from kubeletplugin.sharing.mps_client import MpsClient

_LOCK_SECONDS = 5.0

_log = get_logger("sharing")


class SharingReconciler:
    """One pass looks at every group; a pass that fails for one goes on with the next.

    ``tell(states)`` gets the states of all daemons when they change, None while the supervisor is silent.
    ``tell_hanging(blocked)`` gets the GPUs for which a program of the driver did not end, when that changes.
    """

    def __init__(
        self,
        sharing: Sharing,
        shares: ClaimShares,
        kinds: HeldKinds,
        journal: Journal,
        locks: KeyedLocks,
        mps: MpsClient,
        tell: Callable[[tuple[MpsState, ...] | None], None],
        tell_hanging: Callable[[tuple[BlockedPlacement, ...]], None],
    ) -> None:
        self._sharing = sharing
        self._shares = shares
        self._kinds = kinds
        self._journal = journal
        self._locks = locks
        self._mps = mps
        self._tell = tell
        self._tell_hanging = tell_hanging
        self._hanging: tuple[BlockedPlacement, ...] = ()
        self._used = threading.Event()
        self._stopped = False
        self._daemons: tuple[str, ...] = ()

    def run_once(self) -> None:
        """Set every group as the journal says, and end the daemons that belong to none."""
        records = self._sharing.recorded()
        if any(record.daemon for record in records):
            self.mps_is_used()
        groups = {record.group: set(record.gpus) for record in records}
        for entry in self._journal.held():
            for group, gpus in groups_of(entry).items() if entry.state == "prepared" else ():
                groups.setdefault(group, set()).update(gpus)
        hanging: list[BlockedPlacement] = []
        for group, concerned in sorted(groups.items()):
            hanging += self._under_lock(group, concerned, partial(self._shares.settle, group, concerned))
        self._pass_on(tuple(hanging))
        for daemon in sorted(set(self._daemons) - {record.group for record in records if record.daemon}):
            name = self._kinds.parse(daemon)
            if name is not None and name.pci is not None:
                gpu = {str(name.pci)}
                self._under_lock(daemon, gpu, partial(self._shares.end_unrecorded, daemon, gpu))

    def _pass_on(self, hanging: tuple[BlockedPlacement, ...]) -> None:
        if hanging != self._hanging:
            self._hanging = hanging
            self._tell_hanging(hanging)

    def mps_is_used(self) -> None:
        """Begin to listen to the supervisor; costs next to nothing when called again."""
        self._used.set()

    def follow(self) -> None:
        """Listen to the supervisor from the first use of MPS on, until ``stop``; for a thread of its own."""
        self._used.wait()
        if not self._stopped:
            self._mps.follow(self._heard)

    def stop(self) -> None:
        """Make ``follow`` return."""
        self._stopped = True
        self._used.set()
        self._mps.close()

    def _heard(self, states: tuple[MpsState, ...] | None) -> None:
        self._daemons = tuple(state.name for state in states or ())
        self._tell(states)

    def _under_lock(
        self, group: str, gpus: Iterable[str], work: Callable[[], None]
    ) -> tuple[BlockedPlacement, ...]:
        """Do the work; returns the GPUs for which it failed because a program of the driver hangs."""
        try:
            with self._locks.holding(sorted(map(gpu_key, gpus)), _LOCK_SECONDS):
                work()
        except DriverError as error:
            _log.warning("sharing is not as it has to be yet", group=group, error=str(error))
            found = _hangs(error)
            if found is not None:
                return tuple(
                    BlockedPlacement(PciAddress.parse(pci), None, "driver-hangs", found.what)
                    for pci in sorted(gpus)
                )
        return ()


def _hangs(error: BaseException | None) -> ProgramHangs | None:
    """The program that did not end, where that is why something failed."""
    while error is not None and not isinstance(error, ProgramHangs):
        error = error.__cause__
    return error
