"""Reads what the metrics about use need: the GPUs, the memory of containers, and their processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from driver.errors import DriverError
from driver.hardware.gpu import Gpu
from driver.hardware.inventory import Discovery
from driver.nvml.api import NvmlCallFailed
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.devices.kinds.partition.record import partition_name, record_of
from kubeletplugin.kubelet.wire.containers import ContainerMemory, ContainerName
from kubeletplugin.reports.use.gpu_reading import GpuReading, Instance, Wanted, reading_of
from kubeletplugin.reports.use.process_containers import ProcessContainers

Listed = Mapping[str, frozenset[ContainerName]]
"""By CDI device name, the containers that the kubelet lists for it."""

_log = get_logger("use")


@dataclass(frozen=True, slots=True)
class NodeUse:
    """One reading. GPUs that did not answer are missing in ``gpus``, whose keys are addresses as in sysfs.

    ``memory`` is what containers with limits use, None if not known. ``containers`` are those of processes on
    the GPUs, None for a process outside of containers; a missing process is not known.
    """

    gpus: Mapping[str, GpuReading] = field(default_factory=dict)
    memory: tuple[ContainerMemory, ...] | None = None
    containers: Mapping[int, ContainerName | None] = field(default_factory=dict)


class NodeLook:
    """Looks at a node; takes its time, and is asked from one thread.

    ``listed`` is as the kubelet last told.
    """

    def __init__(
        self,
        discovery: Discovery,
        gpus: Callable[[], Iterable[Gpu]],
        entries: Callable[[], Iterable[Entry]],
        memory: Callable[[], tuple[ContainerMemory, ...]],
        listed: Callable[[], Listed],
        processes: ProcessContainers,
    ) -> None:
        """``gpus()`` are those that NVML listed last, ``entries()`` the live claims of the node.

        ``memory`` and ``listed`` raise DriverError.
        """
        self._discovery = discovery
        self._gpus = gpus
        self._entries = entries
        self._memory = memory
        self._ask_kubelet = listed
        self._processes = processes
        self.listed: Listed = {}

    def look(self) -> NodeUse:
        """Look once; raises StorageError."""
        wanted = wanted_of(self._entries())
        jobs = {gpu.pci: reading_of(wanted.get(str(gpu.pci), Wanted())) for gpu in self._gpus()}
        gpus: dict[str, GpuReading] = {}
        try:
            found: Mapping[PciAddress, GpuReading | NvmlCallFailed] = (
                self._discovery.read(jobs) if jobs else {}
            )
        except DriverError as error:
            _log.debug("use of GPUs is not known", error=str(error))
            found = {}
        for pci, told in found.items():
            if isinstance(told, NvmlCallFailed):
                _log.debug("use of a GPU is not known", gpu=str(pci), error=str(told))
            else:
                gpus[str(pci)] = told
        pids = {one.pid for reading in gpus.values() for one in reading.processes or ()}
        return NodeUse(gpus, self._limited(), self._containers(pids))

    def _containers(self, pids: set[int]) -> dict[int, ContainerName | None]:
        try:
            self.listed = self._ask_kubelet()
        except DriverError as error:
            _log.debug("the kubelet does not list containers", error=str(error))
        return self._processes.of(pids)

    def _limited(self) -> tuple[ContainerMemory, ...] | None:
        try:
            return self._memory()
        except DriverError as error:
            _log.warning("what containers use of GPUs is not known", error=str(error))
            return None


def wanted_of(entries: Iterable[Entry]) -> dict[str, Wanted]:
    """What to ask each GPU, by its address, for the metrics of the claims' devices."""
    instances: dict[str, set[Instance]] = {}
    shared: dict[str, bool] = {}
    for pci, held in _on_gpus(entries):
        instance = instance_of(held)
        if instance is not None and not is_part(held):
            instances.setdefault(pci, set()).add(instance)
        shared[pci] = shared.get(pci, False) or (is_part(held) and instance is None)
    return {
        pci: Wanted(frozenset(instances.get(pci, ())), processes=True, busy=busy)
        for pci, busy in shared.items()
    }


def instance_of(held: HeldDevice) -> Instance | None:
    """NVML's ids of the partition that the device is or lies on; None where it is none, or not made."""
    record = None if partition_name(held) is None else record_of(held)
    if record is None or record.gpu_instance_id is None or record.compute_instance_id is None:
        return None
    return record.gpu_instance_id, record.compute_instance_id


def is_part(held: HeldDevice) -> bool:
    """Whether other claims may have shares beside it."""
    return held.share is not None and held.share.is_part


def _on_gpus(entries: Iterable[Entry]) -> Iterator[tuple[str, HeldDevice]]:
    for entry in entries:
        for held in entry.devices:
            for pci in held.gpus:
                yield pci, held
