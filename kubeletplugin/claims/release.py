"""Takes back what a claim has: first the files that its containers are started with, then its devices."""

from __future__ import annotations

from dataclasses import replace

from driver.errors import DriverError
from driver.process.log import get_logger
from kubeletplugin.claims.files import ClaimFiles
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.claims.journal.journal import Journal, Progress
from kubeletplugin.claims.ports import Ports
from kubeletplugin.devices.fabric.claim_partitions import ClaimFabric
from kubeletplugin.devices.kinds.kind import NodeKinds
from kubeletplugin.sharing.claim_sharing import ClaimShares

_log = get_logger("release")


class Release:
    """Releases claims. Callers hold the locks of the claim and of its GPUs. All methods raise DriverError."""

    def __init__(
        self,
        journal: Journal,
        kinds: NodeKinds,
        shares: ClaimShares,
        fabric: ClaimFabric,
        files: ClaimFiles,
        ports: Ports,
    ) -> None:
        self._journal = journal
        self._kinds = kinds
        self._shares = shares
        self._fabric = fabric
        self._files = files
        self._ports = ports

    def claim(self, uid: str, entry: Entry | None) -> None:
        """Take back everything that the claim has. ``entry`` is its journal entry, None if it has none."""
        # The files first: without the CDI spec the runtime starts no more container with the devices.
        self._files.remove(uid, entry)
        self._ports.listeners.step("spec removed")
        # Without an entry, or with a lost one, nothing says whether the claim had limits.
        if entry is None or entry.state == "lost" or entry.is_limited:
            self._ports.memory.forget(uid)
        if entry is None:
            return
        if entry.state == "lost":
            devices = [held.device for held in entry.devices]
            _log.warning("a lost claim has ended; what was made for it stays", uid=uid, devices=devices)
        if entry.is_limited:
            self._ports.listeners.step("memory forgotten")
        self.devices(entry)

    def devices(self, entry: Entry) -> None:
        """Take back the devices, but not the files."""
        # In the reverse order of prepare. NVML does not destroy a GPU instance that an MPS daemon still uses.
        with self._ports.listeners.timing.during("sharing"):
            if entry.shares:
                self._shares.leave(entry)
        try:
            with self._ports.listeners.timing.during("hardware"):
                self._take_back(entry)
        except DriverError:
            self._ports.watch.left_behind(entry.uid)
            raise
        self._fabric.leave(entry)

    def _take_back(self, entry: Entry) -> None:
        """Take back everything that the entry says was made for the claim.

        It is no error if something is gone already. If one device cannot be taken back, the others are taken
        back all the same. The first error is raised at the end, and the journal then has the entry as
        ``releasing``.
        """
        progress = Progress(self._journal, entry, self._ports.listeners.step, is_written=True)
        failure: DriverError | None = None
        for index in reversed(range(len(entry.devices))):
            held = progress.entry.devices[index]
            kind = self._kinds.of(held)
            # Nothing that was made outlives a reboot or a lost GPU, and little outlives a load of the driver.
            # Of a lost claim nothing says what was made.
            if entry.state == "lost" or not self._journal.is_live(entry, held) or not kind.is_made(held):
                continue
            note = progress.note_for(index, "releasing")
            try:
                progress.update(index, kind.unmake(progress.entry, index, note))
            except DriverError as error:
                failure = failure or error
                progress.write("releasing", "releasing")
        if failure is not None:
            raise failure

    def without_made(self, entry: Entry) -> Entry:
        """The entry with the records that its devices have while nothing is made for them."""
        devices = tuple(replace(held, record=self._kinds.of(held).unmade(held)) for held in entry.devices)
        return replace(entry, devices=devices)
