"""Keeps the fabric partition of each claim active while the claim is held, as the journal says.

In shared NVSwitch mode a GPU has no NVLink, and CUDA does not start, before a partition with it is active. A
partition is activated before anything else is done with its GPUs, above all before they leave the NVIDIA
driver for vfio, and deactivated after they are back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from driver.errors import DriverError
from driver.fabric.api import FabricPartition
from driver.hardware.inventory import Discovery
from driver.kinds.fabric import PARTITION_ATTRIBUTE, WITH_LINKS, KnownGpu, physical_ids
from driver.nvml.api import DriverNotLoaded, NotFound, NotSupported
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, gpu_key
from kubeletplugin.devices.fabric.activation import Activation
from kubeletplugin.devices.fabric.matching import PartitionTaken, partition_of, refuse_taken
from kubeletplugin.devices.fabric.records import FabricRecord, FabricRecords
from kubeletplugin.devices.kinds.kind import HardwareNow, HeldKinds
from kubeletplugin.kubelet.wire.claim_call import ClaimRef

_LOCK_SECONDS = 5.0

_log = get_logger("fabric")


class ClaimFabric:
    """The fabric partitions of the claims of one node.

    Callers hold the locks of the claim and of its GPUs, except for ``run_once``. ``published(device)`` are
    the attributes of a device as last published, empty if never seen.
    """

    def __init__(
        self,
        activation: Activation,
        records: FabricRecords,
        holders: PartitionHolders,
        locks: KeyedLocks,
        discovery: Discovery,
        published: Callable[[str], Mapping[str, Any]],
    ) -> None:
        self._activation = activation
        self._records = records
        self._holders = holders
        self._locks = locks
        self._discovery = discovery
        self._published = published

    def clear(self, gpus: Iterable[str]) -> None:
        """Deactivate what no claim needs any more on GPUs that are to be handed out; raises DriverError."""
        locked = set(gpus)
        for record in self._records.on(locked):
            if self._holders.need(record):
                continue
            if not locked.issuperset(record.gpus):
                raise PartitionTaken(f"fabric partition {record.partition} is being let go", "it is retried")
            self._activation.end(record)

    def partition_of(
        self, ref: ClaimRef, held: Sequence[HeldDevice], hardware: HardwareNow
    ) -> FabricPartition | None:
        """The partition that the claim needs active for these devices; None where it needs none.

        Raises ClaimRefused where no partition has just these GPUs, PartitionTaken where another is in the
        way, FabricError, NvmlError.
        """
        is_expected = any(map(self._is_in_partition, held))
        if not is_expected and self._activation.is_absent:
            return None
        gpus = self._holders.gpus(held)
        if not gpus:
            return None
        partitions = self._activation.partitions(is_expected=is_expected)
        if not partitions:
            return None
        own = self._own(gpus)
        found = next((one for one in partitions if own is not None and one.number == own.partition), None)
        if found is None:
            addresses = [PciAddress.parse(pci) for pci in sorted(gpus)]
            numbers = physical_ids(partitions, [self._known(pci, hardware) for pci in addresses])
            found = partition_of(f"claim {ref.namespace}/{ref.name}", addresses, numbers, partitions)
        refuse_taken(found, partitions, {record.partition for record in self._records.look()})
        return found

    def join(self, entry: Entry, partition: FabricPartition) -> None:
        """Activate the claim's partition; raises DriverError, and then the caller has to call ``leave``."""
        gpus, outlives = self._holders.gpus(entry.devices), self._holders.outlive_driver(entry.devices)
        self._activation.begin(partition, gpus, outlives_driver=outlives)

    def number_of(self, entry: Entry) -> int | None:
        """The number of the partition that is active for the claim, None for none; raises StorageError."""
        gpus = self._holders.gpus(entry.devices)
        if not gpus:
            return None
        found = (one for one in self._records.on(gpus) if one.active and set(one.gpus) == gpus)
        return next((one.partition for one in found), None)

    def leave(self, entry: Entry) -> None:
        """Deactivate the claim's partition unless others need it.

        Before that the journal says that the claim is no longer prepared: another prepare activates the
        partition again. A failure is logged; the partition is deactivated later, at the latest before one of
        its GPUs is handed out again.
        """
        try:
            for record in self._records.on(entry.gpus):
                is_locked = set(entry.gpus).issuperset(record.gpus)
                if is_locked and not self._holders.need(record, without=entry.uid):
                    self._holders.note_release(entry.uid)
                    self._activation.end(record)
        except DriverError as error:
            _log.warning("fabric partition is not deactivated yet", uid=entry.uid, error=str(error))

    def run_once(self) -> None:
        """Deactivate what no claim needs any more, and tell a new fabric manager what is active."""
        try:
            records = self._records.look()
            if records:
                self._activation.restore()
            for record in records:
                if not self._holders.need(record):
                    self._end_if_unneeded(record)
        except DriverError as error:
            _log.warning("the fabric is not as it has to be yet", error=str(error))

    def _end_if_unneeded(self, record: FabricRecord) -> None:
        with self._locks.holding(sorted(map(gpu_key, record.gpus)), _LOCK_SECONDS):
            if record in self._records.look() and not self._holders.need(record):
                self._activation.end(record)

    def _is_in_partition(self, held: HeldDevice) -> bool:
        """Whether the device was published as one in a partition."""
        return any(PARTITION_ATTRIBUTE.fullmatch(name) for name in self._published(held.device))

    def _own(self, gpus: set[str]) -> FabricRecord | None:
        """The record of a partition of just these GPUs, which this claim or shares beside it have left.

        It counts before NVML, which does not know a GPU that has gone to vfio since.
        """
        found = (record for record in self._records.on(gpus) if set(record.gpus) == gpus)
        return next((record for record in found if self._holders.need(record)), None)

    def _known(self, pci: PciAddress, hardware: HardwareNow) -> KnownGpu:
        """The GPU as far as NVML knows it, which is not the case while vfio has it. Raises NvmlError."""
        try:
            uuid = hardware.identity(pci).uuid
            module = self._discovery.on_gpu(pci, lambda device, watch: watch("module_id", device.module_id))
        except NotSupported:
            return KnownGpu(pci, hardware.identity(pci).uuid)
        except (NotFound, DriverNotLoaded):
            return KnownGpu(pci)
        return KnownGpu(pci, uuid, module)


class PartitionHolders:
    """Says by the journal whether claims hold the GPUs of a fabric partition with their NVLinks.

    ``step(name)`` follows the steps.
    """

    def __init__(
        self, kinds: HeldKinds, journal: Journal, era: Callable[[], Era], step: Callable[[str], None]
    ) -> None:
        self._kinds = kinds
        self._journal = journal
        self._era = era
        self._step = step

    def need(self, record: FabricRecord, without: str = "") -> bool:
        """Whether a claim other than that of the UID ``without`` needs the partition of a record."""
        era = self._era()
        return record.is_live(era) and any(
            not self.gpus([held]).isdisjoint(record.gpus) and self._kinds.is_live(entry, held, era)
            for pci in record.gpus
            for entry in self._journal.holders(pci)
            if entry.uid != without
            for held in entry.devices
        )

    def outlive_driver(self, devices: Iterable[HeldDevice]) -> bool:
        """Whether a GPU of theirs is not with the NVIDIA driver, so that loading it again ends nothing."""
        return any(self._kinds.leaves_driver(held) for held in devices)

    def note_release(self, uid: str) -> None:
        """Write down that a claim is not prepared any more, if it was; raises StorageError."""
        entry = self._journal.get(uid)
        if entry is not None and entry.state == "prepared":
            self._journal.put(replace(entry, state="releasing"))
            self._step("releasing")

    def gpus(self, devices: Iterable[HeldDevice]) -> set[str]:
        """The addresses of the GPUs whose NVLinks the devices come with; an unknown kind may come with them.

        A claim with admin access has no NVLinks.
        """
        kinds = self._kinds
        return {
            pci
            for held in devices
            if not held.admin_access and (not kinds.knows(held) or kinds.of(held).offered.word in WITH_LINKS)
            for pci in held.gpus
        }
