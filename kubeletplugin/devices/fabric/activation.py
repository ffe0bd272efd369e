"""Activates and deactivates fabric partitions, with a record before and after, and restores lost ones.

After a crash at any point the next call for the partition does the rest. An active partition without a record
was activated by somebody else, and stays as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import replace

from driver.errors import NvmlError
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
from driver.hardware.persistence import Persistence
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.devices.fabric.records import FabricRecord, FabricRecords

_log = get_logger("fabric")


class Activation:
    """The active partitions of one node. To change one, callers hold the locks of its GPUs.

    ``is_needed(record)`` is whether a claim needs the partition. ``step(name)`` lets tests stop at a step.
    """

    def __init__(
        self,
        manager: FabricManager,
        records: FabricRecords,
        persistence: PartitionPersistence,
        generation: Callable[[], str],
        is_needed: Callable[[FabricRecord], bool],
        step: Callable[[str], None],
    ) -> None:
        self._manager = manager
        self._records = records
        self._persistence = persistence
        self._generation = generation
        self._is_needed = is_needed
        self._step = step
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
            number, generation = partition.number, self._generation()
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
                self._step("fabric noted")
            # The order: which GPUs had persistence mode is on the disk before it is turned off.
            if not partition.active:
                self._persistence.turn_off(known.gpus)
                self._activate(number)
                self._step("fabric activated")
            if not known.active:
                self._records.put(replace(known, active=True))
                self._step("fabric active")

    def end(self, record: FabricRecord) -> None:
        """Deactivate a partition, if it is still active, and remove its record.

        Raises FabricError, StorageError.
        """
        with self._lock:
            if record.is_live(self._generation()):
                # A fabric manager that was just started deactivates nothing before it was told what is
                # active.
                self.partitions(is_expected=True)
                with suppress(NotActive, NotShared):
                    self._manager.deactivate(record.partition)
                self._persistence.turn_on(record.persistent)
                self._step("fabric deactivated")
            self._records.forget(record)
            self._step("fabric forgotten")

    def _restored(self, partitions: tuple[FabricPartition, ...]) -> tuple[FabricPartition, ...]:
        """The partitions, after those of claims that are not active any more were restored."""
        live = [
            record for record in self._records.all() if record.active and record.is_live(self._generation())
        ]
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
            lost = [one.partition for one in live if one.partition in missing and self._is_needed(one)]
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
