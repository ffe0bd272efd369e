"""Keeps the fabric partition of each claim active while the journal says that the claim is held.

In shared NVSwitch mode no NVLink of a GPU is up, and CUDA does not start on it, before a partition with this
GPU is active. A partition is activated before anything else is done with its GPUs, above all before they are
unbound from the NVIDIA driver and bound to vfio. It is deactivated after they are back.
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
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, gpu_key
from kubeletplugin.devices.fabric.activation import Activation
from kubeletplugin.devices.fabric.matching import PartitionTaken, partition_of, refuse_taken
from kubeletplugin.devices.fabric.records import FabricRecord, FabricRecords
from kubeletplugin.devices.kinds.kind import HardwareNow
from kubeletplugin.kubelet.wire.claim_call import ClaimRef

_LOCK_SECONDS = 5.0

_log = get_logger("fabric")


class ClaimFabric:
    """The fabric partitions of the claims of one node.

    Callers hold the locks of the claim and of its GPUs, except for ``run_once``. ``published(device)`` gives
    the attributes of a device as last published, none if never seen.
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
            if self._holders.is_needed(record):
                continue
            if not locked.issuperset(record.gpus):
                raise PartitionTaken(
                    f"fabric partition {record.partition} is being released", "it is tried again"
                )
            self._activation.end(record)

    def partition_of(
        self, ref: ClaimRef, held: Sequence[HeldDevice], hardware: HardwareNow
    ) -> FabricPartition | None:
        """The partition that has to be active for these devices, None if the claim needs none.

        Raises ClaimRefused if no partition has exactly these GPUs, PartitionTaken if another one with one of
        the GPUs is active, FabricError, NvmlError.
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
        refuse_taken(found, partitions, {record.partition for record in self._records.all()})
        return found

    def join(self, entry: Entry, partition: FabricPartition) -> None:
        """Activate the claim's partition. Raises DriverError; then the caller has to call ``leave``."""
        gpus, outlives = self._holders.gpus(entry.devices), self._holders.outlive_driver(entry.devices)
        self._activation.begin(partition, gpus, outlives_driver=outlives)

    def number_of(self, entry: Entry) -> int | None:
        """The number of the partition that is active for the claim, None if none is; raises StorageError."""
        gpus = self._holders.gpus(entry.devices)
        if not gpus:
            return None
        found = (one for one in self._records.on(gpus) if one.active and set(one.gpus) == gpus)
        return next((one.partition for one in found), None)

    def leave(self, entry: Entry) -> None:
        """Deactivate the claim's partition unless other claims need it.

        An error is logged and not raised, so that unprepare never waits for the fabric manager. The partition
        is deactivated later, at the latest before one of its GPUs is handed out again.
        """
        try:
            for record in self._records.on(entry.gpus):
                is_locked = set(entry.gpus).issuperset(record.gpus)
                if is_locked and not self._holders.is_needed(record, without=entry.uid):
                    # The journal first. A prepare after a crash must not answer from an entry that still says
                    # "prepared": it has to activate the partition again.
                    self._holders.note_release(entry.uid)
                    self._activation.end(record)
        except DriverError as error:
            _log.warning("cannot deactivate the fabric partition yet", uid=entry.uid, error=str(error))

    def run_once(self) -> None:
        """Deactivate partitions that no claim needs, and tell a restarted fabric manager what is active."""
        try:
            records = self._records.all()
            if records:
                self._activation.restore()
            for record in records:
                if not self._holders.is_needed(record):
                    self._end_if_unneeded(record)
        except DriverError as error:
            _log.warning("cannot restore the fabric partitions yet", error=str(error))

    def _end_if_unneeded(self, record: FabricRecord) -> None:
        with self._locks.holding(map(gpu_key, record.gpus), _LOCK_SECONDS):
            # A claim may have come, or the record gone, before the locks were taken.
            if record in self._records.all() and not self._holders.is_needed(record):
                self._activation.end(record)

    def _is_in_partition(self, held: HeldDevice) -> bool:
        """Whether the device was published as part of a fabric partition."""
        return any(PARTITION_ATTRIBUTE.fullmatch(name) for name in self._published(held.device))

    def _own(self, gpus: set[str]) -> FabricRecord | None:
        """The record of an active partition of exactly these GPUs, None without one.

        It is from an earlier prepare of this claim, or from claims with shares of the same GPUs.
        """
        # It is used before NVML is asked: NVML does not know the GPUs that are bound to vfio by now.
        found = (record for record in self._records.on(gpus) if set(record.gpus) == gpus)
        return next((record for record in found if self._holders.is_needed(record)), None)

    def _known(self, pci: PciAddress, hardware: HardwareNow) -> KnownGpu:
        """What NVML knows of the GPU: nothing while it is bound to vfio. Raises NvmlError."""
        try:
            uuid = hardware.identity(pci).uuid
            module = self._discovery.on_gpu(pci, lambda device, watch: watch("module_id", device.module_id))
        # The board gives no module id. The fabric manager may give the GPU's address or UUID instead.
        except NotSupported:
            return KnownGpu(pci, hardware.identity(pci).uuid)
        except (NotFound, DriverNotLoaded):
            return KnownGpu(pci)
        return KnownGpu(pci, uuid, module)


class PartitionHolders:
    """Reads in the journal whether claims hold the GPUs of a fabric partition with their NVLinks.

    ``step(name)`` lets tests stop at a step.
    """

    def __init__(self, journal: Journal, step: Callable[[str], None]) -> None:
        self._journal = journal
        self._step = step

    def is_needed(self, record: FabricRecord, without: str = "") -> bool:
        """Whether a claim other than ``without`` needs the partition of a record."""
        return record.is_live(self._journal.generation()) and any(
            not self.gpus([held]).isdisjoint(record.gpus) and self._journal.is_live(entry, held)
            for pci in record.gpus
            for entry in self._journal.holders(pci)
            if entry.uid != without
            for held in entry.devices
        )

    def outlive_driver(self, devices: Iterable[HeldDevice]) -> bool:
        """Whether one of the GPUs is not bound to the NVIDIA driver, so its reload does not end the claim."""
        return any(held.leaves_driver for held in devices)

    def note_release(self, uid: str) -> None:
        """Journal that a claim is being released, if it was prepared; raises StorageError."""
        entry = self._journal.get(uid)
        if entry is not None and entry.state == "prepared":
            self._journal.put(replace(entry, state="releasing"))
            self._step("releasing")

    def gpus(self, devices: Iterable[HeldDevice]) -> set[str]:
        """The addresses of the GPUs that the devices have together with their NVLinks."""
        # Admin access comes without NVLinks. A kind that only a newer version knows may come with them.
        return {
            pci
            for held in devices
            if not held.admin_access and (held.offered is None or held.kind in WITH_LINKS)
            for pci in held.gpus
        }
