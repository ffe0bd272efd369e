"""Sets GPUs up for the shares that claims hold, and puts them back when no share is left.

What a group needs is worked out each time from its shares in the journal; nothing is counted. After a crash
at any point the next call for the group does the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from driver.devices.node_state import Hanging
from driver.errors import ClaimBlocked, ClaimRefused, DriverError, StorageError
from driver.hardware.inventory import Discovery
from driver.kinds.registry import KINDS
from driver.nvml.api import DriverNotLoaded, GpuLost, NotFound, NotSupported, NvmlDevice
from driver.nvml.deadline import Watch
from driver.nvml.modes import ComputeMode
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, ShareRecord, standing
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.devices.host.driver_programs import ProgramHangs
from kubeletplugin.devices.kinds.registry import HELD_KINDS
from kubeletplugin.kubelet.wire.claim_call import left_of_call
from kubeletplugin.kubelet.wire.mps_daemon import MpsDaemon
from kubeletplugin.reports.node_watch import NodeWatch
from kubeletplugin.sharing.mps_client import MpsClient
from kubeletplugin.sharing.records import UNKNOWN, SharingRecord, SharingRecords
from kubeletplugin.sharing.shares import interval_of, limits_together
from kubeletplugin.sharing.time_slices import Interval, TimeSlices

_log = get_logger("sharing")

_MODES: dict[str, ComputeMode] = {"MPS": "exclusive-process", "TimeSlicing": "default"}
SLICE_CHECK_SECONDS = 300.0
"""How often a time-slice is read back. Only an admin's nvidia-smi, or a reset by hand, can have changed it.

NVML has no call for it: each check starts nvidia-smi while claims for the GPU wait for its lock.
"""


_ENOUGH_SECONDS = 3.0


Member = tuple[str, HeldDevice]
"""The UID of a claim, and a shared device that it holds."""


class NotReady(ClaimBlocked):
    """Something that a share needs on its GPU is not ready: an MPS daemon, a compute mode, a time-slice."""


class Sharing:
    """The sharing of one node's GPUs. Callers hold the locks of the GPUs.

    ``watch`` gets which program hung for which GPUs. ``step(name)`` lets tests stop there.
    """

    def __init__(
        self,
        discovery: Discovery,
        time_slices: TimeSlices,
        mps: MpsClient,
        records: SharingRecords,
        watch: NodeWatch,
        step: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        # By GPU, when its time-slice was last set or read back.
        self._slices_checked: dict[str, tuple[str, float]] = {}
        self._discovery = discovery
        self._time_slices = time_slices
        self._mps = mps
        self._records = records
        self._watch = watch
        self._step = step

    def settle(self, group: str, members: Sequence[Member], leaving: Sequence[Member] = ()) -> str | None:
        """Set the group's GPUs up for its members, or put them back if there are none.

        If that is done already, only the MPS supervisor is asked whether the daemon runs. ``leaving`` are
        former members; they say which GPUs the group had if its record was lost. Returns a message about
        what the GPU does not support, else None. Raises ClaimRefused, NotReady, NvmlError, StorageError.
        """
        record = self._records.get(group)
        if not members:
            if record is not None:
                self._undo(
                    _with_all_gpus(record, leaving) if record.interval == UNKNOWN and leaving else record
                )
            return None
        shares = [held.share for _, held in members if held.share is not None]
        gpus = tuple(sorted({held.pci for _, held in members}))
        if record is not None and record.interval == UNKNOWN and shares[0].strategy == "MPS":
            record = _with_all_gpus(record, members)
        if record is not None and (record.strategy, record.gpus) != (shares[0].strategy, gpus):
            # It is left over from shares that are gone.
            self._undo(record)
            record = None
        generation = self._records.generation()
        wanted = record or SharingRecord(group, shares[0].strategy, gpus, driver_generation=generation)
        whole_gpus = [held for _, held in members if has_modes(held)]
        try:
            if wanted.strategy == "MPS":
                self._run_daemon(wanted, whole_gpus, daemon_of(group, members))
                return None
            return self._slice_time(wanted, whole_gpus, interval_of(shares))
        except ClaimBlocked as error:
            raise NotReady(error.what, error.way_out) from error

    def note_lost_settings(self, group: str) -> None:
        """Read the group's GPUs, and if a setting is lost, note it so that the next ``settle`` sets it again.

        A reset of the GPU or an admin may have changed a compute mode or a time-slice. Raises NvmlError,
        StorageError, NodeIncomplete, ClaimBlocked.
        """
        record, name = self._records.get(group), KINDS.parse(group)
        if record is None or not record.applied or name is None or not name.kind.has_modes:
            return
        changed = [pci for pci in record.gpus if self._is_changed(record, pci)]
        if changed:
            _log.warning("the sharing of a GPU was changed by another program", group=group, gpus=changed)
            self._records.put(replace(record, applied=False))

    def _is_changed(self, record: SharingRecord, pci: str) -> bool:
        """Whether a GPU differs from the record. The default time-slice is not checked."""
        if record.strategy == "MPS":
            return self._mode(pci) != _MODES["MPS"]
        if record.interval in ("Default", UNKNOWN):
            return False
        # The first check of this process, and of each load of the driver, is made at once. A reset by heal
        # needs no check of its own: heal undoes what shares have set before it resets the GPU.
        generation, at = self._slices_checked.get(pci, (None, 0.0))
        if generation == self._records.generation() and self._clock() - at < SLICE_CHECK_SECONDS:
            return False
        found = self._time_slices.get(self._uuid(pci))
        self._slices_checked[pci] = self._records.generation(), self._clock()
        return found not in (record.interval, None)

    def records_on(self, gpus: Iterable[str]) -> tuple[SharingRecord, ...]:
        """The records of this load of the driver on any of the GPUs. Needs no locks. Raises StorageError."""
        found = self._records.on(gpus)
        generation = self._records.generation() if found else None
        return tuple(record for record in found if generation is not None and record.is_live(generation))

    def recorded(self) -> tuple[SharingRecord, ...]:
        """All records, also of earlier loads of the driver. Needs no locks. Raises StorageError."""
        return self._records.all()

    def end_unrecorded(self, daemon: str) -> None:
        """End a daemon that the supervisor runs and no record explains; raises DriverError."""
        record = self._records.get(daemon)
        if record is not None and not record.daemon:
            self._mps.stop(daemon)
        # Without a record, compute modes may have been changed for the daemon as well.
        elif record is None and (lost := self._records.assume(daemon)) is not None:
            self._undo(lost)

    def _run_daemon(self, wanted: SharingRecord, whole_gpus: Sequence[HeldDevice], daemon: MpsDaemon) -> None:
        if not wanted.applied:
            wanted = self._set_modes(replace(wanted, daemon=True), whole_gpus)
        with self._noting_hangs("mps-hangs", wanted.gpus):
            self._mps.ensure(daemon)
        self._mps.note_use()
        self._step("daemon")
        self._mark_applied(wanted)

    def _slice_time(
        self, wanted: SharingRecord, whole_gpus: Sequence[HeldDevice], interval: str
    ) -> str | None:
        if not whole_gpus or (wanted.applied and wanted.interval == interval):
            return None
        # Only MPS makes groups of several GPUs.
        gpu = whole_gpus[0]
        unsupported: str | None = "it is a vGPU, and its host decides how long each vGPU computes"
        if not self._discovery.on_gpu(PciAddress.parse(gpu.pci), _reports_vgpu):
            # The record keeps the old time-slice until Default is set: after a crash it still has to be put
            # back.
            noted = wanted.interval if interval == "Default" else interval
            wanted = self._set_modes(replace(wanted, interval=noted, applied=False), whole_gpus)
            with self._noting_hangs("nvidia-smi-hangs", wanted.gpus):
                unsupported = self._time_slices.set(gpu.uuid, cast("Interval", interval))
            self._slices_checked[gpu.pci] = self._records.generation(), self._clock()
            self._step("time-slice")
            wanted = replace(wanted, interval=interval)
        self._mark_applied(wanted)
        if unsupported is None or interval == "Default":
            return None
        return f"time-slice {interval} has no effect on GPU {gpu.pci}: {unsupported}"

    @contextmanager
    def _noting_hangs(self, program: Hanging, gpus: tuple[str, ...]) -> Iterator[None]:
        """Note that the program, which the block uses, hangs for these GPUs, or that it does not any more."""
        try:
            yield
        except ProgramHangs as error:
            # At the end of a call of the kubelet there may have been too little time for it.
            if left_of_call(_ENOUGH_SECONDS) == _ENOUGH_SECONDS:
                self._watch.program_hangs(program, gpus, error.what)
            raise
        self._watch.program_hangs(program, gpus, "")

    def _mark_applied(self, record: SharingRecord) -> None:
        if not record.applied:
            self._records.put(replace(record, applied=True))

    def _set_modes(self, wanted: SharingRecord, whole_gpus: Sequence[HeldDevice]) -> SharingRecord:
        """Set the compute modes that the strategy needs; the modes before are in the record first."""
        mode = _MODES[wanted.strategy]
        before: dict[str, ComputeMode] = dict(wanted.compute_modes)
        changing = []
        for pci in sorted({member.pci for member in whole_gpus}):
            now = self._mode(pci)
            if now == mode or (now is None and mode == "default"):
                continue
            # setdefault: after a crash ``now`` can be a mode that this plugin has set.
            before.setdefault(pci, now or "default")
            changing.append(pci)
        wanted = replace(wanted, compute_modes=before)
        self._records.put(wanted)
        self._step("sharing noted")
        for pci in changing:
            self._set_mode(pci, mode)
            self._step("compute mode")
        return wanted

    def _mode(self, pci: str) -> ComputeMode | None:
        """The compute mode now; None if the GPU has none, as a vGPU, or one that CUDA no longer knows."""

        def job(device: NvmlDevice, watch: Watch) -> ComputeMode | None:
            if _reports_vgpu(device, watch):
                return None
            try:
                return watch("compute_mode", device.compute_mode)
            except NotSupported:
                return None

        return self._discovery.on_gpu(PciAddress.parse(pci), job)

    def _set_mode(self, pci: str, mode: ComputeMode) -> None:
        """Set the compute mode and read it back; raises ClaimRefused, NotReady, NvmlError."""

        def job(device: NvmlDevice, watch: Watch) -> ComputeMode | None:
            if _reports_vgpu(device, watch):
                raise ClaimRefused(
                    f"GPU {pci} is a vGPU and cannot be set to compute mode {mode}, which its sharing needs",
                    "offer this GPU in another form",
                )
            # Read back: a success without the mode would let processes go past the MPS server.
            watch("set_compute_mode", lambda: device.set_compute_mode(mode))
            return watch("compute_mode", device.compute_mode)

        try:
            now = self._discovery.on_gpu(PciAddress.parse(pci), job)
        except NotSupported as error:
            raise ClaimRefused(
                f"GPU {pci} cannot be set to compute mode {mode}, which its sharing needs: {error.what}",
                "offer this GPU in another form",
            ) from error
        if now != mode:
            raise NotReady(
                f"GPU {pci} was set to compute mode {mode} but is in {now}",
                "see the NVIDIA driver's messages in the kernel log (dmesg)",
            )

    def _undo(self, record: SharingRecord) -> None:
        """Put back what the record says was changed, then remove the record.

        If one GPU cannot be put back, the others still are, and the first error is raised at the end. Of a
        GPU that is lost the record stays until it was seen again: it may come back as it was.
        """
        self._begin_undo(record)
        # Before the compute mode: as long as MPS serves clients, nobody may get past its server.
        if record.daemon:
            self._stop_daemon(record)
        failure: DriverError | None = None
        lost = []
        for pci in record.gpus:
            try:
                self._put_back(record, pci)
            except (DriverNotLoaded, GpuLost, NotFound) as error:
                _log.warning("sharing of a GPU is gone or put back later", gpu=pci, error=str(error))
                # Compute mode and time-slice are state of the driver's module.
                if self._records.generation() or not isinstance(error, DriverNotLoaded):
                    lost.append(pci)
            except DriverError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        if lost:
            left = replace(record, gpus=tuple(lost), applied=False)
            if left != self._records.get(record.group):
                self._records.put(left)
            return
        self._records.forget(record.group)
        self._step("sharing forgotten")

    def _begin_undo(self, record: SharingRecord) -> None:
        """Write down that the GPUs are no longer set up: after a crash a new share must set them up again."""
        if not record.applied:
            return
        try:
            self._records.put(replace(record, applied=False))
        # A full disk must not keep a GPU from being put back.
        except StorageError as error:
            _log.warning("cannot record that sharing is being undone", group=record.group, error=str(error))

    def _put_back(self, record: SharingRecord, pci: str) -> None:
        if pci in record.compute_modes:
            try:
                self._set_mode(pci, record.compute_modes[pci])
            # If it cannot be set now, it could not be set for the share, either.
            except ClaimRefused as error:
                _log.warning("cannot restore the compute mode", gpu=pci, error=str(error))
            self._step("compute mode restored")
        if record.interval != "Default":
            self._time_slices.set(self._uuid(pci), "Default")
            self._step("time-slice restored")

    def _stop_daemon(self, record: SharingRecord) -> None:
        try:
            self._mps.stop(record.group)
        except ClaimBlocked as error:
            if record.interval != UNKNOWN:
                raise NotReady(error.what, error.way_out) from error
            # The record was lost, so perhaps there is no daemon. If there is one, the reconciler ends it
            # later with end_unrecorded().
            _log.warning("it is not known whether an MPS daemon runs", group=record.group, error=str(error))
        self._step("daemon stopped")

    def _uuid(self, pci: str) -> str:
        return self._discovery.identity(PciAddress.parse(pci)).uuid


def _reports_vgpu(device: NvmlDevice, watch: Watch) -> bool:
    """Whether the GPU is a vGPU, whose compute mode and time-slice only its host can change."""
    try:
        return watch("virtualization", device.virtualization) == "vgpu"
    except NotSupported:
        return False


def _with_all_gpus(record: SharingRecord, members: Sequence[Member]) -> SharingRecord:
    """An assumed record with all GPUs of these members; on its own it has only the group's first GPU."""
    modes: dict[str, ComputeMode] = {held.pci: "default" for _, held in members if has_modes(held)}
    return replace(record, gpus=tuple(sorted({held.pci for _, held in members})), compute_modes=modes)


def daemon_of(group: str, members: Sequence[Member]) -> MpsDaemon:
    """The daemon that the members need. A daemon has one limit for all clients: that of the largest share.

    The environment of each client lowers it to the client's own share (see ``mps_edits``).
    """
    uuids = tuple(sorted({cuda_uuid(held) for _, held in members}))
    # All shares of one request and device reach the same container, so they count as one client.
    granted: dict[tuple[str, str, str], list[ShareRecord]] = {}
    for uid, held in members:
        if held.share is not None:
            granted.setdefault((uid, held.request, cuda_uuid(held)), []).append(held.share)
    limits = [(uuid, limits_together(shares)) for (_, _, uuid), shares in granted.items()]
    pinned = {uuid: [mib for of, (_, mib) in limits if of == uuid] for uuid in uuids}
    return MpsDaemon(
        group,
        uuids,
        multi_user=any(share.multi_user for shares in granted.values() for share in shares),
        active_thread_percentage=max(percentage for _, (percentage, _) in limits),
        pinned_memory_mib=tuple(0 if 0 in pinned[uuid] else max(pinned[uuid]) for uuid in uuids),
    )


def has_modes(held: HeldDevice) -> bool:
    """Whether it is a GPU, with a compute mode and a time-slice.

    A partition has neither, and sharing it leaves those of its GPU as they are.
    """
    return held.offered is not None and held.offered.has_modes


def cuda_uuid(held: HeldDevice) -> str:
    """The UUID by which CUDA knows the device, empty for a partition that is not made yet."""
    return HELD_KINDS.of(held).cuda_uuid(held)


def members_of(group: str, entries: Iterable[Entry], journal: Journal, without: str = "") -> Iterator[Member]:
    """The shares of a group that claims have, except those of the claim ``without``."""
    generation = journal.generation()
    # Without a UUID the partition is not made: the claim's prepare was interrupted, so it has no process
    # there and counts once it is prepared again. A kind that only a newer version knows never has a UUID
    # here.
    return (
        (uid, held)
        for entry in entries
        if entry.uid != without and standing(entry, generation).has_devices
        for uid, held in members_of_entry(group, entry)
        if cuda_uuid(held) or held.offered is None
    )


def members_of_entry(group: str, entry: Entry) -> tuple[Member, ...]:
    """The shares of a group that a claim has or had."""
    return tuple(
        (entry.uid, held) for held in entry.devices if held.share is not None and held.share.group == group
    )
