"""Keeps the fabric partition of each claim active while the journal says that the claim is held.

In shared NVSwitch mode no NVLink of a GPU is up, and CUDA does not start on it, before a partition with this
GPU is active. A partition is activated before anything else is done with its GPUs, above all before they are
unbound from the NVIDIA driver and bound to vfio. It is deactivated after they are back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from driver.errors import DriverError, NvmlError
from driver.fabric.api import (
    AlreadyActive,
    FabricCode,
    FabricError,
    FabricManager,
    FabricPartition,
    NoFabricManager,
    NotActive,
    NotShared,
)
from driver.hardware.inventory import Discovery
from driver.hardware.persistence import Persistence
from driver.kinds.fabric import PARTITION_ATTRIBUTE, WITH_LINKS, KnownGpu, physical_ids
from driver.nvml.api import DriverNotLoaded, NotFound, NotSupported
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, gpu_key
from kubeletplugin.devices.fabric.matching import PartitionTaken, partition_of, refuse_taken
from kubeletplugin.devices.fabric.records import FabricRecord, FabricRecords
from kubeletplugin.devices.kinds.kind import HardwareNow
from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from kubeletplugin.reports.published import PublishedDevices

_LOCK_SECONDS = 5.0

_log = get_logger("fabric")


class ClaimFabric:
    """The fabric partitions of the claims of one node.

    Callers hold the locks of the claim and of its GPUs, except for ``run_once``.
    """

    def __init__(
        self,
        manager: FabricManager,
        records: FabricRecords,
        holders: PartitionHolders,
        locks: KeyedLocks,
        discovery: Discovery,
        published: PublishedDevices,
    ) -> None:
        self._activation = Activation(manager, records, PartitionPersistence(Persistence(discovery)), holders)
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
        return any(PARTITION_ATTRIBUTE.fullmatch(name) for name in self._published.attributes_of(held.device))

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
        self.generation = journal.generation
        self.step = step

    def is_needed(self, record: FabricRecord, without: str = "") -> bool:
        """Whether a claim other than ``without`` needs the partition of a record."""
        return record.is_live(self.generation()) and any(
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
            self.step("releasing")

    def gpus(self, devices: Iterable[HeldDevice]) -> set[str]:
        """The addresses of the GPUs that the devices have together with their NVLinks."""
        # Admin access comes without NVLinks. A kind that only a newer version knows may come with them.
        return {
            pci
            for held in devices
            if not held.admin_access and (held.offered is None or held.kind in WITH_LINKS)
            for pci in held.gpus
        }


class Activation:
    """The active partitions of one node, with a record before and after each change; restores lost ones.

    After a crash at any point the next call for the partition does the rest. An active partition without a
    record was activated by somebody else, and stays as it is. To change one, callers hold the locks of its
    GPUs.
    """

    def __init__(
        self,
        manager: FabricManager,
        records: FabricRecords,
        persistence: PartitionPersistence,
        holders: PartitionHolders,
    ) -> None:
        self._manager = manager
        self._records = records
        self._persistence = persistence
        self._holders = holders
        # One call of the fabric manager at a time: what is active must not change between reading and setting
        # it.
        self._lock = threading.RLock()
        # The fabric manager that answered that it is not in shared mode. Changing the mode means starting it
        # again, so this one is not asked any more.
        self._instance_not_shared: Hashable | None = None
        # The fabric manager that last gave its partitions.
        self._known_instance: Hashable | None = None
        # Whether a partition that a claim needs could not be activated again.
        self._is_incomplete = False

    @property
    def is_absent(self) -> bool:
        """Whether the node has no shared fabric, as far as known without a call of the fabric manager."""
        # Each call is a process of its own, and every claim for a GPU comes here. This costs a few calls of
        # stat.
        instance = self._manager.instance()
        if instance is not None:
            return instance == self._instance_not_shared
        return self._known_instance is None and not self._records.all()

    def partitions(self, *, is_expected: bool = False) -> tuple[FabricPartition, ...]:
        """The partitions as they are now, none without a shared fabric; raises FabricError.

        Partitions of claims that the fabric manager does not know as active are restored first. If no fabric
        manager listens, NoFabricManager is raised, but only if a shared fabric ``is_expected`` or was seen.
        """
        instance = self._manager.instance()
        if instance is not None and instance == self._instance_not_shared:
            return ()
        with self._lock:
            try:
                if instance is None:
                    raise NoFabricManager("the fabric manager of this node is not listening")
                found = self._manager.partitions()
            except NotShared:
                self._instance_not_shared, self._known_instance = instance, None
                return ()
            # Most nodes have no fabric manager, and their claims must not wait for one.
            except NoFabricManager as error:
                if is_expected or self._known_instance is not None or self._records.all():
                    raise
                if instance is not None:
                    _log.warning(
                        "the fabric manager cannot be used; the node is treated as one without it",
                        error=str(error),
                    )
                return ()
            self._known_instance = instance
            return self._restored(found)

    def restore(self) -> None:
        """Restore what is active if the fabric manager was started again meanwhile; raises FabricError."""
        instance = self._manager.instance()
        if instance is not None and (instance != self._known_instance or self._is_incomplete):
            self.partitions()

    def begin(self, partition: FabricPartition, gpus: Iterable[str], *, outlives_driver: bool) -> None:
        """Activate a partition of these GPUs; raises FabricError, NvmlError, StorageError."""
        with self._lock:
            number, generation = partition.number, self._holders.generation()
            known = next((one for one in self._records.all() if one.partition == number), None)
            # Somebody else activated it. Without a record it also stays active when the claim ends.
            if partition.active and known is None:
                return
            # Loading the NVIDIA driver again does not change a partition whose GPUs are bound to vfio.
            load = "" if outlives_driver else generation
            if known is None or not known.is_live(generation):
                on = self._persistence.those_on(sorted(gpus))
                known = FabricRecord(number, tuple(sorted(gpus)), load, persistent=on)
                self._records.put(known)
                self._holders.step("fabric noted")
            # The order: which GPUs had persistence mode is on the disk before it is turned off.
            if not partition.active:
                self._persistence.turn_off(known.gpus)
                self._activate(number)
                self._holders.step("fabric activated")
            if not known.active:
                self._records.put(replace(known, active=True))
                self._holders.step("fabric active")

    def end(self, record: FabricRecord) -> None:
        """Deactivate a partition, if it is still active, and remove its record.

        Raises FabricError, StorageError.
        """
        with self._lock:
            if record.is_live(self._holders.generation()):
                # A fabric manager that was just started deactivates nothing before it was told what is
                # active.
                self.partitions(is_expected=True)
                with suppress(NotActive, NotShared):
                    self._manager.deactivate(record.partition)
                self._persistence.turn_on(record.persistent)
                self._holders.step("fabric deactivated")
            self._records.forget(record)
            self._holders.step("fabric forgotten")

    def _restored(self, partitions: tuple[FabricPartition, ...]) -> tuple[FabricPartition, ...]:
        """The partitions, after those of claims that are not active any more were restored."""
        generation = self._holders.generation()
        live = [record for record in self._records.all() if record.active and record.is_live(generation)]
        active = {one.number for one in partitions if one.active}
        missing = {record.partition for record in live} - active
        self._is_incomplete = False
        if not missing:
            return partitions
        # With FABRIC_MODE_RESTART=1 a restarted fabric manager leaves the switches as they are, and waits to
        # be told everything that is active.
        try:
            self._manager.set_activated(tuple(sorted(active | missing)))
            _log.warning(
                "told the restarted fabric manager which partitions are active", partitions=sorted(missing)
            )
        # Without that setting it has disconnected everything, so what claims need is activated again.
        except FabricError as error:
            lost = [
                one.partition for one in live if one.partition in missing and self._holders.is_needed(one)
            ]
            if lost:
                _log.warning(
                    "the fabric manager has lost partitions of claims; they are activated again, and their "
                    "pods may have to be restarted",
                    partitions=lost,
                    error=str(error),
                )
            for number in lost:
                self._reactivate(number)
        return self._manager.partitions()

    def _reactivate(self, number: int) -> None:
        """Activate a claim's partition again. An error is logged; ``restore`` tries again."""
        try:
            self._manager.activate(number)
        except FabricError as error:
            self._is_incomplete = True
            _log.error("cannot activate the fabric partition of a claim", partition=number, error=str(error))

    def _activate(self, number: int) -> None:
        """Activate a partition, even if the fabric manager still waits to be told what is active."""
        try:
            self._manager.activate(number)
        # IN_USE also if another partition has one of the GPUs, which is an error. If this one is active,
        # an earlier call that timed out was carried out all the same, for example.
        except AlreadyActive:
            if not any(one.active and one.number == number for one in self._manager.partitions()):
                raise
        except FabricError as error:
            if error.code != FabricCode.NOT_CONFIGURED:
                raise
            active = [record.partition for record in self._records.all() if record.active]
            self._manager.set_activated(tuple(active))
            self._manager.activate(number)


class PartitionPersistence:
    """The persistence mode of a partition's GPUs: off before it is activated, on again at the end.

    Persistence mode keeps GPUs initialised, which nothing may do while their partition is activated. NVIDIA's
    own DRA driver turns it off, too. GPUs are given by their addresses.
    """

    def __init__(self, persistence: Persistence) -> None:
        self._persistence = persistence

    def those_on(self, gpus: Iterable[str]) -> tuple[str, ...]:
        """Those of the GPUs whose mode is on. A GPU that NVML does not have has none. Raises NvmlError."""
        return tuple(pci for pci in gpus if self._persistence.is_on(PciAddress.parse(pci)))

    def turn_off(self, gpus: Iterable[str]) -> None:
        """Turn the mode off; raises NvmlError."""
        for pci in self.those_on(gpus):
            self._persistence.set(PciAddress.parse(pci), on=False)

    def turn_on(self, gpus: Iterable[str]) -> None:
        """Turn the mode on again. Errors are only logged."""
        for pci in gpus:
            try:
                self._persistence.set(PciAddress.parse(pci), on=True)
            # Without the mode, only the next program starts about a second later.
            except NvmlError as error:
                _log.warning("cannot turn persistence mode on again", gpu=pci, error=str(error))
