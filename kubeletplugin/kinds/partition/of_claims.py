"""Makes and takes back the partitions of one claim, with each step in the claim's journal entry.

A step is written down before the hardware is touched and after. So whoever comes next, after a crash
or a failure, knows what is the claim's and what is somebody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from driver.devices.names import DeviceName, parse_device_name
from driver.errors import ClaimBlocked, DriverError
from driver.nvml.api import DriverNotLoaded, GpuLost, InstanceNotFound, NotFound
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.journal.entry import Entry, HeldDevice, PartitionRecord
from kubeletplugin.journal.journal import Journal
from kubeletplugin.kinds.partition.making import Partitions
from kubeletplugin.wire.planned import PlannedDevice

_log = get_logger("partitions")


class ClaimPartitions:
    """The partitions of the claims of one node, in the boot that is running.

    Callers hold the locks of the claim and of its GPUs. ``step(name)`` follows the steps.
    """

    def __init__(
        self, partitions: Partitions, journal: Journal, boot_id: str, step: Callable[[str], None]
    ) -> None:
        self._partitions = partitions
        self._journal = journal
        self._boot_id = boot_id
        self._step = step

    def located(
        self, planned: Sequence[PlannedDevice], before: Entry | None
    ) -> tuple[PartitionRecord | None, ...]:
        """What each device is on its GPU, None for a whole one; what an earlier try has made is kept.

        Raises ClaimRefused for a partition that the GPU cannot have or has no more, ClaimBlocked for
        admin access to one that nobody holds, NvmlError.
        """
        known: dict[str, PartitionRecord] = {}
        if before is not None and before.holds and before.boot_id == self._boot_id:
            known = {held.device: self._record(held) for held in before.devices if _is_ours(held)}
        return tuple(self._located(device, known) for device in planned)

    def make(self, entry: Entry) -> Entry:
        """Make those partitions of a claim that are made on request; the entry with their ids and UUIDs.

        One that another claim has made, and shares, is there already; the caller has written the entry of a
        claim with shares down.
        Raises DriverError; the journal then says how far it came, and ``take_back`` undoes it.
        """
        for index, device in enumerate(entry.devices):
            if device.partition is None or not _is_ours(device):
                continue
            twin = next((one for one in entry.devices[:index] if one.device == device.device), None)
            if twin is not None:
                entry = _with_record(entry, index, twin.partition)
                continue
            pci = PciAddress.parse(device.pci)
            if self._is_made_by_another(entry.uid, device, device.partition):
                continue
            journaled = _Journaled(self._journal, entry, index, self._step)
            ours = self._instances_of_others(device.pci, entry.uid)
            record = self._partitions.make(pci, device.partition, ours, journaled.note)
            entry = _with_record(journaled.entry, index, record)
        return entry

    def take_back(self, entry: Entry) -> Entry:
        """Destroy what the entry says was made for the claim; the entry without it.

        What is gone already is fine: nothing outlives a reboot, or the driver, or a GPU that was lost.
        One partition that cannot be destroyed does not keep the others: the first error is raised at
        the end, and the journal then has the entry as ``releasing``.
        """
        if entry.boot_id != self._boot_id:
            return without_records(entry)
        touched: set[PciAddress] = set()
        failure: DriverError | None = None
        for index in reversed(range(len(entry.devices))):
            device = entry.devices[index]
            if not _is_ours(device):
                continue
            if self._has_another(entry.uid, device):
                entry = _with_record(entry, index, _unmade(device.partition))
                continue
            try:
                entry = self._take_back_one(entry, index)
                touched.add(PciAddress.parse(device.pci))
            except DriverError as error:
                failure = failure or error
                entry = self._journal_releasing(self._journal.get(entry.uid) or entry)
        for pci in sorted(touched):
            self._partitions.rest(pci)
        if failure is not None:
            raise failure
        return entry

    def intact(self, entry: Entry) -> bool:
        """Whether every partition of a prepared claim is still there; raises NvmlError."""
        return all(
            self._partitions.exists(PciAddress.parse(device.pci), device.partition)
            for device in entry.devices
            if device.partition is not None
        )

    def ready_for_whole(self, pci: PciAddress) -> None:
        """Turn MIG mode off for a claim that gets the whole GPU; raises ClaimBlocked where that cannot be."""
        self._partitions.ready_for_whole(pci)

    def _located(self, device: PlannedDevice, known: dict[str, PartitionRecord]) -> PartitionRecord | None:
        name = device.name
        if name.profile is None:
            return None
        if device.allocated.admin_access and not name.static:
            return self._made_for_another(device)
        wanted = device.allocated.device
        own = known.get(wanted)
        if own is not None and own.attempted:
            return own
        return self._made_already(device) or own or self._partitions.locate(name)

    def _made_already(self, device: PlannedDevice) -> PartitionRecord | None:
        """The partition as another claim, which shares it, has made it or has begun to."""
        if device.name.shared is None or device.name.static:
            return None
        for entry in self._sharers(str(device.pci)):
            for held in entry.devices:
                if held.device == device.allocated.device and _may_be_made(held):
                    return self._record(held)
        return None

    def _is_made_by_another(self, uid: str, device: HeldDevice, record: PartitionRecord) -> bool:
        return self._has_another(uid, device) and self._partitions.exists(
            PciAddress.parse(device.pci), record
        )

    def _has_another(self, uid: str, device: HeldDevice) -> bool:
        """Whether another claim shares the partition as it is made, and so keeps it."""
        name = parse_device_name(device.device)
        if name is None or name.shared is None:
            return False
        return any(
            held.device == device.device and _may_be_made(held)
            for entry in self._sharers(device.pci)
            if entry.uid != uid
            for held in entry.devices
        )

    def _sharers(self, pci: str) -> tuple[Entry, ...]:
        """The claims with something on the GPU in this boot that have not ended."""
        return tuple(
            entry
            for entry in self._journal.holders(pci)
            if entry.boot_id == self._boot_id and entry.state in ("preparing", "prepared")
        )

    def _made_for_another(self, device: PlannedDevice) -> PartitionRecord:
        """The partition that the claim looks on at: it exists as long as another claim holds it."""
        wanted = device.allocated.device
        for entry in self._journal.holders(str(device.pci)):
            for held in entry.devices:
                if held.device == wanted and not held.admin_access and held.partition and held.partition.uuid:
                    return held.partition
        raise ClaimBlocked(
            f"no claim holds {wanted} now, so the partition does not exist, and admin access makes none",
            "it exists while a claim holds it; ask for another device",
        )

    def _instances_of_others(self, pci: str, uid: str) -> frozenset[int]:
        """The GPU instances on a GPU that were made for other claims in this boot."""
        return frozenset(
            held.partition.gpu_instance_id
            for entry in self._journal.holders(pci)
            if entry.uid != uid and entry.boot_id == self._boot_id
            for held in entry.devices
            if held.pci == pci and held.partition and held.partition.gpu_instance_id is not None
        )

    def _take_back_one(self, entry: Entry, index: int) -> Entry:
        device = entry.devices[index]
        pci = PciAddress.parse(device.pci)
        record = device.partition
        try:
            record = self._record(device)
            entry = _with_record(entry, index, record)
            if not record.attempted:
                return entry
            entry = self._journal_releasing(entry)
            journaled = _Journaled(self._journal, entry, index, self._step)
            self._partitions.destroy(pci, record, journaled.note)
            entry = journaled.entry
        except InstanceNotFound:
            raise
        except (DriverNotLoaded, GpuLost, NotFound) as error:
            _log.warning("partition gone with its GPU", device=device.device, uid=entry.uid, error=str(error))
        return _with_record(entry, index, _unmade(record))

    def _record(self, device: HeldDevice) -> PartitionRecord:
        """The record of a partition that was made for a claim; looked up for an entry that was rebuilt."""
        if device.partition is not None:
            return device.partition
        # Rebuilt from the CDI spec, which is written only after the partition was made.
        return replace(self._partitions.locate(_name(device)), attempted=True)

    def _journal_releasing(self, entry: Entry) -> Entry:
        if entry.state != "releasing":
            entry = replace(entry, state="releasing")
            self._journal.put(entry)
            self._step("releasing")
        return entry


class _Journaled:
    """Writes the record of one device of an entry down at each step."""

    def __init__(self, journal: Journal, entry: Entry, index: int, step: Callable[[str], None]) -> None:
        self.entry = entry
        self._journal = journal
        self._index = index
        self._step = step

    def note(self, step: str, record: PartitionRecord) -> None:
        """Write the record as it is at a step; raises StorageError."""
        entry = _with_record(self.entry, self._index, record)
        self._journal.put(entry)
        self.entry = entry
        self._step(step)


def _name(device: HeldDevice) -> DeviceName:
    name = parse_device_name(device.device)
    if name is None:
        raise ValueError(f"{device.device} is no device of this driver, and yet in its journal")
    return name


def _is_ours(device: HeldDevice) -> bool:
    """Whether the device is a partition that is made for its claim and destroyed with it."""
    name = parse_device_name(device.device)
    return name is not None and name.profile is not None and not name.static and not device.admin_access


def _may_be_made(device: HeldDevice) -> bool:
    """Whether the claim, which may have been rebuilt, has made its partition or has begun to."""
    return not device.admin_access and (device.partition is None or device.partition.attempted)


def _with_record(entry: Entry, index: int, record: PartitionRecord | None) -> Entry:
    devices = list(entry.devices)
    devices[index] = replace(devices[index], partition=record)
    return replace(entry, devices=tuple(devices))


def _unmade(record: PartitionRecord | None) -> PartitionRecord | None:
    """The record of a partition that does not exist."""
    if record is None:
        return None
    return replace(record, attempted=False, gpu_instance_id=None, compute_instance_id=None, uuid="")


def without_records(entry: Entry) -> Entry:
    """The entry after a reboot: nothing that was made is there."""
    devices = tuple(
        replace(device, partition=_unmade(device.partition)) if _is_ours(device) else device
        for device in entry.devices
    )
    return replace(entry, devices=devices)
