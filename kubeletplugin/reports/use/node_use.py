"""Reads the values for the metrics about use: of GPUs, of the memory of containers, and of processes."""

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
    """One reading of a node."""

    # By PCI address, in the format of sysfs; without GPUs that did not answer.
    gpus: Mapping[str, GpuReading] = field(default_factory=dict)
    # The use of containers with limits, None if unknown.
    memory: tuple[ContainerMemory, ...] | None = None
    # The container of each process on the GPUs, by process id: None for one outside of containers. Processes
    # with an unknown container are missing.
    containers: Mapping[int, ContainerName | None] = field(default_factory=dict)


class UseReader:
    """Reads the use of a node's GPUs; this takes time and is done by one thread.

    ``listed`` is the kubelet's last list of containers.
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
        """``gpus()`` returns the GPUs that NVML listed last, ``entries()`` the live claims of the node.

        ``memory`` and ``listed`` raise DriverError.
        """
        self._discovery = discovery
        self._gpus = gpus
        self._entries = entries
        self._memory = memory
        self._ask_kubelet = listed
        self._processes = processes
        self.listed: Listed = {}

    def read(self) -> NodeUse:
        """Read everything once; raises StorageError."""
        wanted = wanted_of(self._entries())
        # Every GPU is read, also one without claims, for the metrics of the GPU itself.
        jobs = {gpu.pci: reading_of(wanted.get(str(gpu.pci), Wanted())) for gpu in self._gpus()}
        gpus: dict[str, GpuReading] = {}
        try:
            # All GPUs at once, each in a thread of its own, so that one that hangs delays no other.
            found: Mapping[PciAddress, GpuReading | NvmlCallFailed] = (
                self._discovery.read(jobs) if jobs else {}
            )
        except DriverError as error:
            _log.debug("cannot read the use of GPUs", error=str(error))
            found = {}
        for pci, reading in found.items():
            if isinstance(reading, NvmlCallFailed):
                _log.debug("cannot read the use of a GPU", gpu=str(pci), error=str(reading))
            else:
                gpus[str(pci)] = reading
        pids = {one.pid for reading in gpus.values() for one in reading.processes or ()}
        return NodeUse(gpus, self._limited(), self._containers(pids))

    def _containers(self, pids: set[int]) -> dict[int, ContainerName | None]:
        try:
            # Without an answer the last list stays.
            self.listed = self._ask_kubelet()
        except DriverError as error:
            _log.debug("the kubelet does not list containers", error=str(error))
        return self._processes.of(pids)

    def _limited(self) -> tuple[ContainerMemory, ...] | None:
        try:
            return self._memory()
        except DriverError as error:
            _log.warning("cannot read what containers use of GPUs", error=str(error))
            return None


def wanted_of(entries: Iterable[Entry]) -> dict[str, Wanted]:
    """What to read from each GPU, by its address, for the metrics of the claims' devices."""
    instances: dict[str, set[Instance]] = {}
    shared: dict[str, bool] = {}
    for pci, held in _on_gpus(entries):
        instance = instance_of(held)
        if instance is not None and not is_part(held):
            instances.setdefault(pci, set()).add(instance)
        # The utilisation of single processes is needed only for shares of a whole GPU.
        shared[pci] = shared.get(pci, False) or (is_part(held) and instance is None)
    return {
        pci: Wanted(frozenset(instances.get(pci, ())), processes=True, busy=busy)
        for pci, busy in shared.items()
    }


def instance_of(held: HeldDevice) -> Instance | None:
    """NVML's ids of the partition that the device is or is a share of; None if there is none, or none yet."""
    record = None if partition_name(held) is None else record_of(held)
    if record is None or record.gpu_instance_id is None or record.compute_instance_id is None:
        return None
    return record.gpu_instance_id, record.compute_instance_id


def is_part(held: HeldDevice) -> bool:
    """Whether the device is a share, beside which other claims may have shares."""
    return held.share is not None and held.share.is_part


def _on_gpus(entries: Iterable[Entry]) -> Iterator[tuple[str, HeldDevice]]:
    for entry in entries:
        for held in entry.devices:
            for pci in held.gpus:
                yield pci, held
