"""Makes the sharing of GPUs what the journal says, after crashes and when an MPS daemon has ended.

It finishes interrupted prepares and unprepares, and ends daemons without a share. It also reports the states
of the daemons, and GPUs for which a program of the NVIDIA driver hangs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial

from driver.devices.node_state import BlockedPlacement
from driver.errors import DriverError
from driver.kinds.registry import KINDS
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, gpu_key
from kubeletplugin.devices.host.driver_programs import ProgramHangs
from kubeletplugin.kubelet.wire.mps_daemon import MpsState
from kubeletplugin.sharing.claim_sharing import ClaimShares, groups_of
from kubeletplugin.sharing.gpus import Sharing
from kubeletplugin.sharing.mps_client import MpsClient

_LOCK_SECONDS = 5.0

_log = get_logger("sharing")


class SharingReconciler:
    """Settles every group in each pass; an error in one group does not stop the others.

    ``report_daemons(states)`` gets the states of all daemons when they change, None if the supervisor does
    not answer. ``report_hanging(blocked)`` gets the GPUs for which a program of the driver did not end, when
    they change.
    """

    def __init__(
        self,
        sharing: Sharing,
        shares: ClaimShares,
        journal: Journal,
        locks: KeyedLocks,
        mps: MpsClient,
        report_daemons: Callable[[tuple[MpsState, ...] | None], None],
        report_hanging: Callable[[tuple[BlockedPlacement, ...]], None],
    ) -> None:
        self._sharing = sharing
        self._shares = shares
        self._journal = journal
        self._locks = locks
        self._mps = mps
        self._report_daemons = report_daemons
        self._report_hanging = report_hanging
        self._hanging: tuple[BlockedPlacement, ...] = ()
        self._mps_used = threading.Event()
        self._stopped = False
        self._daemons: tuple[str, ...] = ()

    def run_once(self) -> None:
        """Set every group up as the journal says, and end the daemons that belong to none."""
        records = self._sharing.recorded()
        if any(record.daemon for record in records):
            self.note_mps_use()
        groups = {record.group: set(record.gpus) for record in records}
        # A group whose record was lost still has claims in the journal.
        for entry in self._journal.held():
            for group, gpus in groups_of(entry).items() if entry.state == "prepared" else ():
                groups.setdefault(group, set()).update(gpus)
        hanging: list[BlockedPlacement] = []
        for group, concerned in sorted(groups.items()):
            hanging += self._under_lock(group, concerned, partial(self._shares.settle, group, concerned))
        if tuple(hanging) != self._hanging:
            self._hanging = tuple(hanging)
            self._report_hanging(self._hanging)
        # The records are from the beginning of this pass. A daemon that was started meanwhile looks
        # unrecorded here, but end_unrecorded() reads its record again under the locks.
        for daemon in sorted(set(self._daemons) - {record.group for record in records if record.daemon}):
            name = KINDS.parse(daemon)
            if name is not None and name.pci is not None:
                gpu = {str(name.pci)}
                self._under_lock(daemon, gpu, partial(self._shares.end_unrecorded, daemon, gpu))

    def note_mps_use(self) -> None:
        """Make ``follow`` begin. Calling it again costs almost nothing."""
        self._mps_used.set()

    def follow(self) -> None:
        """Follow the supervisor from the first use of MPS until ``stop``. Needs a thread of its own."""
        self._mps_used.wait()
        if not self._stopped:
            self._mps.follow(self._on_states)

    def stop(self) -> None:
        """Make ``follow`` return."""
        self._stopped = True
        self._mps_used.set()
        self._mps.close()

    def _on_states(self, states: tuple[MpsState, ...] | None) -> None:
        self._daemons = tuple(state.name for state in states or ())
        self._report_daemons(states)

    def _under_lock(
        self, group: str, gpus: Iterable[str], work: Callable[[], None]
    ) -> tuple[BlockedPlacement, ...]:
        """Do the work with the GPUs locked; returns the GPUs if a program of the driver hangs."""
        try:
            with self._locks.holding(map(gpu_key, gpus), _LOCK_SECONDS):
                work()
        except DriverError as error:
            _log.warning("cannot restore the sharing of GPUs yet", group=group, error=str(error))
            found = _hangs(error)
            if found is not None:
                return tuple(
                    BlockedPlacement(PciAddress.parse(pci), None, "driver-hangs", found.what)
                    for pci in sorted(gpus)
                )
        return ()


def _hangs(error: BaseException | None) -> ProgramHangs | None:
    """The ProgramHangs that caused an error, None if it has another cause."""
    while error is not None and not isinstance(error, ProgramHangs):
        error = error.__cause__
    return error
