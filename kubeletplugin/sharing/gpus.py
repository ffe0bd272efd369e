"""Sets a GPU up so that the shares that claims hold can be used, and puts it back when none is left.

What a group needs follows each time from its shares in the journal: nothing is counted. Every call may be the
last before a crash; the next call for the group does the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from driver.errors import ClaimBlocked, ClaimRefused, DriverError, StorageError
from driver.hardware.inventory import Discovery
from driver.nvml.api import DriverNotLoaded, GpuLost, NotFound, NotSupported, NvmlDevice
from driver.nvml.deadline import Watch
from driver.nvml.modes import ComputeMode
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, ShareRecord, standing
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.devices.kinds.kind import HeldKinds
from kubeletplugin.kubelet.wire.mps_daemon import MpsDaemon
from kubeletplugin.sharing.conflicts import interval_of
from kubeletplugin.sharing.mps_client import MpsClient
from kubeletplugin.sharing.mps_edits import limits_together
from kubeletplugin.sharing.records import UNKNOWN, SharingRecord, SharingRecords
from kubeletplugin.sharing.time_slices import Interval, TimeSlices

_log = get_logger("sharing")

_MODES: dict[str, ComputeMode] = {"MPS": "exclusive-process", "TimeSlicing": "default"}
_NO_SLICE = "time-slice {} has no effect on GPU {}"
_OF_HOST = "it is a vGPU, whose host decides how long each vGPU computes"
_GONE = (DriverNotLoaded, GpuLost, NotFound)

SLICE_SECONDS = 300.0
"""How often a time-slice is looked at that nobody but an admin's nvidia-smi, or a reset by hand, can have
changed. NVML does not tell it, and each look is a process that the claims of the GPU wait for."""


@dataclass(frozen=True, slots=True)
class Member:
    """One share that a claim holds, with the claim's UID.

    ``cuda_uuid`` is what CUDA knows the device by. ``has_modes`` is whether it is a GPU with a compute mode
    and a time-slice; partitions have none, and those of their GPU stay as they are.
    """

    uid: str
    held: HeldDevice
    cuda_uuid: str
    has_modes: bool


class NotReady(ClaimBlocked):
    """What a share needs on its GPU is not there yet: an MPS daemon, a compute mode, a time-slice."""


class Sharing:
    """The sharing of one node's GPUs. Callers hold the locks of the GPUs.

    ``mps_is_used()`` is called for each daemon that a share needs. ``step(name)`` is for tests to follow.
    """

    def __init__(
        self,
        discovery: Discovery,
        time_slices: TimeSlices,
        mps: MpsClient,
        records: SharingRecords,
        kinds: HeldKinds,
        era: Callable[[], Era],
        mps_is_used: Callable[[], None],
        step: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._slices_seen: dict[str, tuple[Era, float]] = {}
        self._discovery = discovery
        self._time_slices = time_slices
        self._mps = mps
        self._records = records
        self._kinds = kinds
        self._era = era
        self._mps_is_used = mps_is_used
        self._step = step

    def settle(self, group: str, members: Sequence[Member], leaving: Sequence[Member] = ()) -> str | None:
        """Set the group's GPUs up for its members, or as they were before if there are none.

        If that is done already, MPS is only asked whether its daemon runs. ``leaving`` are former members:
        they tell which GPUs a lost record had. Returns in words what the GPU cannot do. Raises ClaimRefused,
        NotReady, NvmlError, StorageError.
        """
        record = self._records.get(group)
        if not members:
            if record is not None:
                self._undo(_widened(record, leaving) if record.interval == UNKNOWN and leaving else record)
            return None
        shares = [member.held.share for member in members if member.held.share is not None]
        gpus = tuple(sorted({member.held.pci for member in members}))
        if record is not None and record.interval == UNKNOWN and shares[0].strategy == "MPS":
            record = _widened(record, members)
        if record is not None and (record.strategy, record.gpus) != (shares[0].strategy, gpus):
            self._undo(record)  # left over from shares that are gone
            record = None
        era = self._era()
        wanted = record or SharingRecord(
            group, era.boot_id, shares[0].strategy, gpus, driver_generation=era.driver_generation
        )
        whole = [member.held for member in members if member.has_modes]
        try:
            if wanted.strategy == "MPS":
                self._run_daemon(wanted, whole, daemon_of(group, members))
                return None
            return self._slice_time(wanted, whole, interval_of(shares))
        except ClaimBlocked as error:
            raise NotReady(error.what, error.way_out) from error

    def look_again(self, group: str) -> None:
        """Make the next ``settle`` set again what the group's GPUs have lost.

        A reset of the GPU, or somebody else, may have changed a compute mode or a time-slice. Raises
        NvmlError, StorageError, NodeIncomplete, ClaimBlocked.
        """
        record, name = self._records.get(group), self._kinds.parse(group)
        if record is None or not record.applied or name is None or not name.kind.has_modes:
            return
        changed = [pci for pci in record.gpus if self._is_changed(record, pci)]
        if changed:
            _log.warning("sharing of a GPU was changed by somebody else", group=group, gpus=changed)
            self._records.put(replace(record, applied=False))

    def _is_changed(self, record: SharingRecord, pci: str) -> bool:
        """Whether a GPU is not as the record has it; a time-slice is looked at where one was asked for.

        The first look of a process and the first of a load of the driver are made at once, then one every
        ``SLICE_SECONDS``. A heal needs none: it puts away what shares have set before it resets the GPU.
        """
        if record.strategy == "MPS":
            return self._mode(pci) != _MODES["MPS"]
        if record.interval in ("Default", UNKNOWN):
            return False
        era, at = self._slices_seen.get(pci, (None, 0.0))
        if era == self._era() and self._clock() - at < SLICE_SECONDS:
            return False
        found = self._time_slices.get(self._uuid(pci))
        self._slices_seen[pci] = self._era(), self._clock()
        return found not in (record.interval, None)

    def records_on(self, gpus: Iterable[str]) -> tuple[SharingRecord, ...]:
        """The records of this era that concern any of the GPUs; for any caller. Raises StorageError."""
        found = self._records.on(gpus)
        era = self._era() if found else None
        return tuple(record for record in found if era is not None and record.is_live(era))

    def recorded(self) -> tuple[SharingRecord, ...]:
        """All records, also of earlier boots; for any caller. Raises StorageError."""
        return self._records.look()

    def end_unrecorded(self, daemon: str) -> None:
        """End a daemon that the supervisor runs and no record accounts for; raises DriverError."""
        record = self._records.get(daemon)
        if record is not None and not record.daemon:
            self._mps.stop(daemon)
        elif record is None and (lost := self._records.assume(daemon)) is not None:
            self._undo(lost)

    def _run_daemon(self, wanted: SharingRecord, whole: Sequence[HeldDevice], daemon: MpsDaemon) -> None:
        if not wanted.applied:
            wanted = self._take_modes(replace(wanted, daemon=True), whole)
        self._mps.ensure(daemon)
        self._mps_is_used()
        self._step("daemon")
        self._applied(wanted)

    def _slice_time(self, wanted: SharingRecord, whole: Sequence[HeldDevice], interval: str) -> str | None:
        if not whole or (wanted.applied and wanted.interval == interval):
            return None
        if self._is_vgpu(whole[0].pci):
            self._applied(wanted)
            return (
                None if interval == "Default" else f"{_NO_SLICE.format(interval, whole[0].pci)}: {_OF_HOST}"
            )
        # Until Default is set again, what is to be put back stays written down.
        noted = wanted.interval if interval == "Default" else interval
        wanted = self._take_modes(replace(wanted, interval=noted, applied=False), whole)
        cannot = self._time_slices.set(whole[0].uuid, cast("Interval", interval))
        self._slices_seen[whole[0].pci] = self._era(), self._clock()
        self._step("time-slice")
        self._applied(replace(wanted, interval=interval))
        if cannot is None or interval == "Default":
            return None
        return f"{_NO_SLICE.format(interval, whole[0].pci)}: {cannot}"

    def _applied(self, record: SharingRecord) -> None:
        if not record.applied:
            self._records.put(replace(record, applied=True))

    def _take_modes(self, wanted: SharingRecord, whole: Sequence[HeldDevice]) -> SharingRecord:
        """Set the compute modes that the strategy needs, once what they were before is written down.

        Partitions have none: the mode of their GPU stays as it is.
        """
        mode = _MODES[wanted.strategy]
        before: dict[str, ComputeMode] = dict(wanted.compute_modes)
        changing = []
        for pci in sorted({member.pci for member in whole}):
            now = self._mode(pci)
            if now == mode or (now is None and mode == "default"):
                continue
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
        """The compute mode now; None where the GPU has none (a vGPU), or one that CUDA knows no longer."""

        def job(device: NvmlDevice, watch: Watch) -> ComputeMode | None:
            if _told_vgpu(device, watch):
                return None
            try:
                return watch("compute_mode", device.compute_mode)
            except NotSupported:
                return None

        return self._discovery.on_gpu(PciAddress.parse(pci), job)

    def _set_mode(self, pci: str, mode: ComputeMode) -> None:
        """Set it and read it back, since some tools report success without having set it."""

        def job(device: NvmlDevice, watch: Watch) -> ComputeMode | None:
            if _told_vgpu(device, watch):
                raise ClaimRefused(
                    f"GPU {pci} is a vGPU and cannot be set to compute mode {mode}, without which its "
                    "sharing would not hold",
                    "offer this GPU in another form",
                )
            watch("set_compute_mode", lambda: device.set_compute_mode(mode))
            return watch("compute_mode", device.compute_mode)

        try:
            now = self._discovery.on_gpu(PciAddress.parse(pci), job)
        except NotSupported as error:
            raise ClaimRefused(
                f"GPU {pci} cannot be set to compute mode {mode}, without which its sharing would not hold: "
                f"{error.what}",
                "offer this GPU in another form",
            ) from error
        if now != mode:
            raise NotReady(
                f"GPU {pci} was set to compute mode {mode} and is in {now}", "see its driver's log"
            )

    def _is_vgpu(self, pci: str) -> bool:
        return self._discovery.on_gpu(PciAddress.parse(pci), _told_vgpu)

    def _undo(self, record: SharingRecord) -> None:
        """Put back what the record says was changed, then forget it; a GPU that is gone needs nothing.

        If one GPU cannot be put back, the others are all the same: the first error is raised at the end.
        """
        self._begin_undo(record)
        if record.daemon:
            self._stop_daemon(record)
        failure: DriverError | None = None
        for pci in record.gpus:
            try:
                self._put_back(record, pci)
            except _GONE as error:
                _log.warning(
                    "sharing of a GPU that is gone is forgotten", group=record.group, error=str(error)
                )
            except DriverError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        self._records.forget(record.group)
        self._step("sharing forgotten")

    def _begin_undo(self, record: SharingRecord) -> None:
        """Write down that the GPUs are no longer as a share needs them: after a crash one may come back."""
        if not record.applied:
            return
        try:
            self._records.put(replace(record, applied=False))
        except StorageError as error:  # a full disk must not keep a GPU from being put back
            _log.warning("sharing is put back unnoted", group=record.group, error=str(error))

    def _put_back(self, record: SharingRecord, pci: str) -> None:
        if pci in record.compute_modes:
            try:
                self._set_mode(pci, record.compute_modes[pci])
            except ClaimRefused as error:  # then it could not be changed before, either
                _log.warning("compute mode is left as it is", gpu=pci, error=str(error))
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
            # Perhaps there never was one. If there is, it is ended as one that no record accounts for.
            _log.warning("nobody knows whether an MPS daemon runs", group=record.group, error=str(error))
        self._step("daemon stopped")

    def _uuid(self, pci: str) -> str:
        return self._discovery.identity(PciAddress.parse(pci)).uuid


def _told_vgpu(device: NvmlDevice, watch: Watch) -> bool:
    """Whether the GPU is a vGPU; only its host can change the modes."""
    try:
        return watch("virtualization", device.virtualization) == "vgpu"
    except NotSupported:
        return False


def _widened(record: SharingRecord, members: Sequence[Member]) -> SharingRecord:
    """A lost record that was assumed, with all GPUs of its members: it had only the first."""
    modes: dict[str, ComputeMode] = {one.held.pci: "default" for one in members if one.has_modes}
    return replace(record, gpus=tuple(sorted({one.held.pci for one in members})), compute_modes=modes)


def daemon_of(group: str, members: Sequence[Member]) -> MpsDaemon:
    """The daemon that the members need: what all of them are let have is what the largest of them has.

    Each client is held to its own limits by its environment, which can lower them only.
    """
    uuids = tuple(sorted({member.cuda_uuid for member in members}))
    granted: dict[tuple[str, str, str], list[ShareRecord]] = {}
    for member in members:
        if member.held.share is not None:
            key = member.uid, member.held.request, member.cuda_uuid
            granted.setdefault(key, []).append(member.held.share)
    limits = [(uuid, limits_together(shares)) for (_, _, uuid), shares in granted.items()]
    pinned = {uuid: [mib for of, (_, mib) in limits if of == uuid] for uuid in uuids}
    return MpsDaemon(
        group,
        uuids,
        multi_user=any(share.multi_user for shares in granted.values() for share in shares),
        active_thread_percentage=max(percentage for _, (percentage, _) in limits),
        pinned_memory_mib=tuple(0 if 0 in pinned[uuid] else max(pinned[uuid]) for uuid in uuids),
    )


def members_of(
    group: str, entries: Iterable[Entry], era: Era, kinds: HeldKinds, without: str = ""
) -> tuple[Member, ...]:
    """The shares of a group that claims have in this era, except those of the claim ``without``.

    A claim whose prepare ended before it knew its partition has no client there: it counts once it is
    prepared again. Devices that only a newer version knows count as they are.
    """
    return tuple(
        member
        for entry in entries
        if entry.uid != without and standing(entry, era).has_devices
        for member in members_of_entry(group, entry, kinds)
        if member.cuda_uuid or not kinds.knows(member.held)
    )


def members_of_entry(group: str, entry: Entry, kinds: HeldKinds) -> tuple[Member, ...]:
    """The shares of a group that a claim has or had."""
    return tuple(
        Member(entry.uid, held, (kind := kinds.of(held)).cuda_uuid(held), kind.offered.has_modes)
        for held in entry.devices
        if held.share is not None and held.share.group == group
    )
