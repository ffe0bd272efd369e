"""Reads the values for the metrics about use: of GPUs, of the memory of containers, and of processes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from driver.errors import DriverError
from driver.hardware.gpu import Gpu
from driver.hardware.inventory import Discovery
from driver.nvml import api
from driver.nvml.api import NvmlCallFailed
from driver.nvml.deadline import Watch
from driver.nvml.pci_address import PciAddress
from driver.nvml.use.calls import MemoryUse, ProcessBusy, ProcessUse, Utilisation
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.devices.kinds.partition.record import partition_name, record_of
from kubeletplugin.kubelet.wire.containers import ContainerMemory, ContainerName

T = TypeVar("T")

Instance = tuple[int, int]
"""NVML's ids of a partition: of its GPU instance and its compute instance."""

_OF_ALL_CALLS = (api.DriverNotLoaded, api.GpuLost, api.NvmlTimeout, api.SessionLost)
"""Errors after which no other call would be answered either."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What was read from a GPU; None for a value that could not be read. Such partitions are left out."""

    memory: MemoryUse | None = None
    utilisation: Utilisation | None = None
    power_milliwatts: int | None = None
    power_limit_milliwatts: int | None = None
    temperature_celsius: int | None = None
    processes: tuple[ProcessUse, ...] | None = None
    busy: tuple[ProcessBusy, ...] | None = None
    partitions: Mapping[Instance, MemoryUse] = field(default_factory=dict)
    partition_busy: Mapping[Instance, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to read from a GPU besides the values that are read from every GPU."""

    # The partitions that claims have alone.
    partitions: frozenset[Instance] = frozenset()
    # Whether to list processes.
    processes: bool = False
    # Whether to read how busy each process keeps the GPU, which is needed for shares.
    busy: bool = False


def reading_of(wanted: Wanted) -> Callable[[api.NvmlDevice, Watch], GpuReading]:
    """The job that reads a GPU.

    A single call that fails leaves its value out. The job raises NvmlCallFailed if the GPU is lost or hangs,
    or if there is no NVML session.
    """

    def job(device: api.NvmlDevice, watch: Watch) -> GpuReading:
        def value(name: str, call: Callable[[], T]) -> T | None:
            try:
                return watch(name, call)
            except _OF_ALL_CALLS:
                raise
            # Many values are not supported by some GPU, by MIG mode or by a driver.
            except api.NvmlCallFailed:
                return None

        memory: dict[Instance, MemoryUse] = {}
        busy: dict[Instance, float] = {}
        for instance in sorted(wanted.partitions):
            used = value("partition_memory_use", partial(device.partition_memory_use, *instance))
            if used is not None:
                memory[instance] = used
            # NVML counts the utilisation of a GPU instance as a whole.
            part = value("partition_utilisation", partial(device.partition_utilisation, instance[0]))
            if part is not None:
                busy[instance] = part
        return GpuReading(
            value("memory_use", device.memory_use),
            value("utilisation", device.utilisation),
            value("power_milliwatts", device.power_milliwatts),
            value("power_limit_milliwatts", device.power_limit_milliwatts),
            value("temperature_celsius", device.temperature_celsius),
            value("processes", device.processes) if wanted.processes else None,
            value("busy_processes", device.busy_processes) if wanted.busy else None,
            memory,
            busy,
        )

    return job


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


LINKS = "var/log/containers"
"""Where the kubelet keeps the links, below the host's root (legacyLogSymlink of pkg/kubelet/kuberuntime)."""

_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}"
_GROUP = re.compile(
    rf"pod({_UID})(?:\.slice)?/(?:[a-z-]+-)?([0-9a-f]{{64}})(?:\.scope)?(?:/|$)", re.MULTILINE
)
"""The group of a container with the cgroup driver systemd (``kubepods-podUID.slice/cri-containerd-ID.scope``)
or cgroupfs (``kubepods/podUID/ID``). The first match counts: groups that a container makes are below its own.
"""
# Names of pods, namespaces and containers have no underscores, so these separate the parts.
_LINK = re.compile(r"([^_]+)_([^_]+)_([^_]+)-([0-9a-f]{64})\.log")


@dataclass(frozen=True, slots=True)
class ContainerGroup:
    """The container of a control group: the UID of its pod, and its id in the runtime."""

    pod_uid: str
    container_id: str


def container_of(cgroup: str) -> ContainerGroup | None:
    """The container of a process, from the text of its /proc/PID/cgroup; None if it is in none.

    Works with cgroup v1 and v2, with both cgroup drivers of the kubelet, below any parent group, and in a
    cgroup namespace.
    """
    found = _GROUP.search(cgroup)
    return None if found is None else ContainerGroup(found[1].replace("_", "-"), found[2])


class ProcessContainers:
    """Finds the container that a process is in, by its control group and the kubelet's links to the logs.

    NVML lists processes by their ids on the host. ``proc`` is the host's if the plugin's pod has ``hostPID``,
    and ``host_root`` is the host's root. ``/proc/PID/cgroup`` has the pod's UID and the container's id; a
    process cannot leave the control group of its container. The kubelet keeps a link
    ``POD_NAMESPACE_CONTAINER-ID.log`` for each container in ``/var/log/containers``, whose name has the rest.
    Only names are read, links are not followed.
    """

    def __init__(self, proc: Path, host_root: Path) -> None:
        self._proc = proc
        self._links = host_root / LINKS
        self._names: dict[str, ContainerName] = {}

    def of(self, pids: Iterable[int]) -> dict[int, ContainerName | None]:
        """The container of each process, None for a process outside of containers.

        Processes that have ended, and those whose container has no name here, are left out.
        """
        groups = {pid: cgroup for pid in pids if (cgroup := self._group(pid)) is not None}
        wanted = {one.container_id for one in map(container_of, groups.values()) if one is not None}
        # Ids of containers are never used again, so names stay valid until a new container appears.
        if not wanted <= self._names.keys():
            self._names = self._listed()
        found: dict[int, ContainerName | None] = {}
        for pid, cgroup in groups.items():
            group = container_of(cgroup)
            if group is None:
                found[pid] = None
            elif group.container_id in self._names:
                found[pid] = self._names[group.container_id]
        return found

    def _group(self, pid: int) -> str | None:
        try:
            return (self._proc / str(pid) / "cgroup").read_text(errors="replace")
        except OSError:
            return None

    def _listed(self) -> dict[str, ContainerName]:
        """The names of all containers of the node, by their ids."""
        try:
            # A link's name begins with the pod's, so a container cannot be looked up by its id.
            names = os.listdir(self._links)  # noqa: PTH208 - only names are needed
        except OSError:
            return {}
        links = (match for name in names if (match := _LINK.fullmatch(name)))
        return {link[4]: ContainerName(link[2], link[1], link[3]) for link in links}
