"""Activates and deactivates fabric partitions, notes each before and after, and restores lost ones.

Every call may be the last before a crash; the next call for the partition does the rest. A partition that is
active and has no record is somebody else's, and stays as it is.
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
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.devices.fabric.records import FabricRecord, FabricRecords

_log = get_logger("fabric")


class Activation:
    """What is active on one node. Callers hold the locks of a partition's GPUs where they change it.

    ``is_needed(record)`` is whether a claim needs a partition. ``step(name)`` follows the steps.
    """

    def __init__(
        self,
        manager: FabricManager,
        records: FabricRecords,
        persistence: PersistenceOfMembers,
        era: Callable[[], Era],
        is_needed: Callable[[FabricRecord], bool],
        step: Callable[[str], None],
    ) -> None:
        self._manager = manager
        self._records = records
        self._persistence = persistence
        self._era = era
        self._is_needed = is_needed
        self._step = step
        self._talk = threading.RLock()
        self._not_shared: Hashable | None = None
        self._knows: Hashable | None = None
        self._is_incomplete = False

    @property
    def is_absent(self) -> bool:
        """Whether the node has no shared fabric, as far as is known without asking a fabric manager."""
        instance = self._manager.instance()
        if instance is not None:
            return instance == self._not_shared
        return self._knows is None and not self._records.look()

    def partitions(self, *, is_expected: bool = False) -> tuple[FabricPartition, ...]:
        """The partitions as they are now, none without a shared fabric; raises FabricError.

        What claims have active is restored where the fabric manager does not know of it. While none listens,
        NoFabricManager is raised where a shared fabric ``is_expected`` or was seen before; else it is that of
        a node without one, whose GPUs do not wait for it.
        """
        instance = self._manager.instance()
        if instance is not None and instance == self._not_shared:
            return ()
        with self._talk:
            try:
                if instance is None:
                    raise NoFabricManager("the fabric manager of this node does not listen")
                found = self._manager.partitions()
            except NotShared:
                self._not_shared, self._knows = instance, None
                return ()
            except NoFabricManager as error:
                if is_expected or self._knows is not None or self._records.look():
                    raise
                if instance is not None:
                    _log.warning("fabric manager is taken for none", error=str(error))
                return ()
            self._knows = instance
            return self._restored(found)

    def restore(self) -> None:
        """Tell a fabric manager that was started since it was asked what is active; raises FabricError."""
        instance = self._manager.instance()
        if instance is not None and (instance != self._knows or self._is_incomplete):
            self.partitions()

    def begin(self, partition: FabricPartition, gpus: Iterable[str], *, outlives_driver: bool) -> None:
        """Activate a partition of these GPUs; raises FabricError, NvmlError, StorageError.

        One that was active before, and not by this plugin, also stays active when the claim ends.
        """
        with self._talk:
            number, era = partition.number, self._era()
            known = next((one for one in self._records.look() if one.partition == number), None)
            if partition.active and known is None:
                return
            load = "" if outlives_driver else era.driver_generation
            if known is None or not known.is_live(era):
                on = self._persistence.on_of(sorted(gpus))
                known = FabricRecord(number, tuple(sorted(gpus)), era.boot_id, load, persistent=on)
                self._records.put(known)
                self._step("fabric noted")
            if not partition.active:
                self._persistence.turn_off(known.gpus)
                self._activate(number)
                self._step("fabric activated")
            if not known.active:
                self._records.put(replace(known, active=True))
                self._step("fabric active")

    def end(self, record: FabricRecord) -> None:
        """Deactivate a partition and forget it; one that is not active any more is fine.

        Raises FabricError, StorageError.
        """
        with self._talk:
            if record.is_live(self._era()):
                self.partitions(is_expected=True)
                with suppress(NotActive, NotShared):
                    self._manager.deactivate(record.partition)
                self._persistence.turn_on(record.persistent)
                self._step("fabric deactivated")
            self._records.forget(record)
            self._step("fabric forgotten")

    def _restored(self, partitions: tuple[FabricPartition, ...]) -> tuple[FabricPartition, ...]:
        """The partitions, once all that were activated for claims are active again."""
        live = [record for record in self._records.look() if record.active and record.is_live(self._era())]
        active = {one.number for one in partitions if one.active}
        missing = {record.partition for record in live} - active
        self._is_incomplete = False
        if not missing:
            return partitions
        try:
            self._manager.set_activated(tuple(sorted(active | missing)))
            _log.warning("fabric manager was told which partitions are active", partitions=sorted(missing))
        except FabricError as error:
            lost = [one.partition for one in live if one.partition in missing and self._is_needed(one)]
            if lost:
                _log.warning(
                    "fabric manager has lost partitions of claims, which are activated anew: their pods may "
                    "have to be started again",
                    partitions=lost,
                    error=str(error),
                )
            for number in lost:
                self._activate_anew(number)
        return self._manager.partitions()

    def _activate_anew(self, number: int) -> None:
        """Activate again what a claim has lost; a failure is tried again, and stops no other claim."""
        try:
            self._manager.activate(number)
        except FabricError as error:
            self._is_incomplete = True
            _log.error("fabric partition of a claim is not active", partition=number, error=str(error))

    def _activate(self, number: int) -> None:
        """Activate a partition, also by a fabric manager that still waits to be told what is active."""
        try:
            self._manager.activate(number)
        except AlreadyActive:
            if not any(one.active and one.number == number for one in self._manager.partitions()):
                raise
        except FabricError as error:
            if error.code != FabricCode.NOT_CONFIGURED:
                raise
            active = [record.partition for record in self._records.look() if record.active]
            self._manager.set_activated(tuple(active))
            self._manager.activate(number)


class PersistenceOfMembers:
    """The persistence mode of a partition's GPUs: off before it is activated, on again at the end.

    NVIDIA's own driver turns it off, too: nothing may keep GPUs initialised while their partition is
    activated. GPUs are named by their addresses.
    """

    def __init__(self, persistence: Persistence) -> None:
        self._persistence = persistence

    def on_of(self, gpus: Iterable[str]) -> tuple[str, ...]:
        """Those of the GPUs whose mode is on; one that NVML does not have has none. Raises NvmlError."""
        return tuple(pci for pci in gpus if self._persistence.is_on(PciAddress.parse(pci)))

    def turn_off(self, gpus: Iterable[str]) -> None:
        """Turn the mode off; raises NvmlError."""
        for pci in self.on_of(gpus):
            self._persistence.set(PciAddress.parse(pci), on=False)

    def turn_on(self, gpus: Iterable[str]) -> None:
        """Turn the mode on again; what fails is logged, since it costs the next user a second and no more."""
        for pci in gpus:
            try:
                self._persistence.set(PciAddress.parse(pci), on=True)
            except NvmlError as error:
                _log.warning("persistence mode is not put back", gpu=pci, error=str(error))
