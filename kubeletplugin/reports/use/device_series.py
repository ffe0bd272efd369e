"""The metric series of the devices that claims have, and of their GPUs.

Unknown values are None and are not reported. Processes on a GPU are assigned to claims by their containers,
and by the devices that the kubelet lists for these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from driver.hardware.gpu import Gpu
from driver.kinds.registry import KINDS
from driver.nvml.use.calls import ProcessUse
from driver.process.metrics.table import Reading
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.devices.kinds.partition.record import PartitionRecord
from kubeletplugin.devices.kinds.partition.record import record_of as partition_record
from kubeletplugin.devices.kinds.registry import HELD_KINDS
from kubeletplugin.devices.kinds.vgpu.record import VgpuRecord
from kubeletplugin.devices.kinds.vgpu.record import record_of as vgpu_record
from kubeletplugin.kubelet.wire.containers import ContainerName
from kubeletplugin.reports.published import PublishedDevices
from kubeletplugin.reports.use.node_use import Instance, Listed, NodeUse, instance_of, is_part

USE_SERIES = (
    "gpu_dra_device_info",
    "gpu_dra_device_memory_allocated_bytes",
    "gpu_dra_device_memory_used_bytes",
    "gpu_dra_device_share_ratio",
    "gpu_dra_device_utilization_ratio",
    "gpu_dra_container_gpu_memory_used_bytes",
    "gpu_dra_gpu_info",
    "gpu_dra_gpu_memory_total_bytes",
    "gpu_dra_gpu_memory_allocated_bytes",
    "gpu_dra_gpu_memory_used_bytes",
    "gpu_dra_gpu_utilization_ratio",
    "gpu_dra_gpu_power_watts",
    "gpu_dra_gpu_power_limit_watts",
    "gpu_dra_gpu_temperature_celsius",
)

_SHARING = {"TimeSlicing": "time-slicing", "MPS": "mps"}

_CUT = frozenset({"partition", "static", "vgpu"})
"""The kinds of devices that are a part of a GPU."""


class UseSeries:
    """The series for the claims of one node."""

    def __init__(self, published: PublishedDevices) -> None:
        self._published = published

    def readings(
        self, entries: Iterable[Entry], gpus: Iterable[Gpu], use: NodeUse, listed: Listed
    ) -> Iterator[Reading]:
        """The readings for these live claims, and for the GPUs that NVML lists."""
        by_pci = {str(gpu.pci): gpu for gpu in gpus}
        devices = [(entry, held) for entry in entries for held in entry.devices]
        owners = attributed((held for _, held in devices), use, listed)
        allocated: dict[str, list[int | None]] = {pci: [] for pci in by_pci}
        for entry, held in devices:
            labels = self._labels(entry, held, listed)
            memory_bytes = _allocated_bytes(held, self._published.memory_of(held.device), by_pci)
            # Admin access takes no memory from others.
            for pci in held.gpus if not held.admin_access else ():
                whole = len(held.gpus) > 1 and pci in by_pci
                allocated.setdefault(pci, []).append(by_pci[pci].memory_bytes if whole else memory_bytes)
            yield from self._infos(held, labels, by_pci)
            amounts = {
                "memory_allocated_bytes": memory_bytes,
                "memory_used_bytes": used_bytes(entry, held, use, owners, listed),
                "share_ratio": share_ratio(held, memory_bytes, by_pci),
                "utilization_ratio": utilisation(held, use, owners, listed),
            }
            for name, amount in amounts.items():
                if amount is not None:
                    yield Reading(f"gpu_dra_device_{name}", labels, amount)
            yield from _containers(held, labels, owners)
        for pci, gpu in by_pci.items():
            yield from _of_gpu(pci, gpu, use, allocated[pci])

    def _labels(self, entry: Entry, held: HeldDevice, listed: Listed) -> dict[str, str]:
        # A label has one value: with several pods it is empty.
        pods = {name.pod for name in listed.get(held.cdi_device, ())}
        share = held.share
        return {
            "claim_namespace": entry.namespace,
            "claim": entry.name,
            "pod": pods.pop() if len(pods) == 1 else "",
            "class": held.device_class,
            "kind": _SHARING[share.strategy] if share is not None and is_part(held) else _word(held),
            "device": held.allocated_name,
            "uuid": HELD_KINDS.of(held).cuda_uuid(held),
            "share_id": held.share_id or "",
        }

    def _infos(
        self, held: HeldDevice, labels: Mapping[str, str], gpus: Mapping[str, Gpu]
    ) -> Iterator[Reading]:
        profile = _profile_of(held)
        for pci in held.gpus or ("",):
            uuid = gpus[pci].uuid if pci in gpus else held.uuid if pci == held.pci else ""
            more = {"pool": held.pool, "gpu_uuid": uuid, "pci_bus_id": pci, "profile": profile}
            yield Reading("gpu_dra_device_info", {**labels, **more}, 1)


def _containers(held: HeldDevice, labels: Mapping[str, str], owners: _Attributed) -> Iterator[Reading]:
    of_device = owners.devices.get(held.cdi_device)
    for name, amount in sorted(of_device.containers.items(), key=str) if of_device is not None else ():
        if amount is not None:
            kept = {key: labels[key] for key in ("claim_namespace", "claim", "device", "uuid", "share_id")}
            whose = {**kept, "pod": name.pod, "container": name.container}
            yield Reading("gpu_dra_container_gpu_memory_used_bytes", whose, amount)


def _of_gpu(pci: str, gpu: Gpu, use: NodeUse, allocated: list[int | None]) -> Iterator[Reading]:
    labels = {"uuid": gpu.uuid, "pci_bus_id": pci}
    yield Reading("gpu_dra_gpu_info", {**labels, "product": gpu.product_name or ""}, 1)
    known = [one for one in allocated if one is not None]
    reading = use.gpus.get(pci)
    amounts: dict[str, float | None] = {
        "memory_total_bytes": gpu.memory_bytes,
        "memory_allocated_bytes": sum(known) if len(known) == len(allocated) else None,
    }
    if reading is not None:
        amounts |= {
            "memory_used_bytes": None if reading.memory is None else reading.memory.used_bytes,
            "utilization_ratio": None if reading.utilisation is None else reading.utilisation.compute,
            "power_watts": _thousandth(reading.power_milliwatts),
            "power_limit_watts": _thousandth(reading.power_limit_milliwatts),
            "temperature_celsius": reading.temperature_celsius,
        }
    for name, amount in amounts.items():
        if amount is not None:
            yield Reading(f"gpu_dra_gpu_{name}", labels, amount)


def _thousandth(amount: int | None) -> float | None:
    return None if amount is None else amount / 1000


def _word(held: HeldDevice) -> str:
    return "unknown" if held.offered is None else held.kind


def _record_of(held: HeldDevice) -> PartitionRecord | VgpuRecord | None:
    """The record of a device that is a part of a GPU, or a share of such a part; None for others."""
    if held.kind not in _CUT:
        return None
    return vgpu_record(held) if held.kind == "vgpu" else partition_record(held)


def _profile_of(held: HeldDevice) -> str:
    """The MIG profile or vGPU type of the device, or of what it is a share of; empty for whole GPUs."""
    record = _record_of(held)
    return "" if record is None else record.profile


def _allocated_bytes(held: HeldDevice, published_bytes: int | None, gpus: Mapping[str, Gpu]) -> int | None:
    """The memory that a claim gets with a device; for a share without an amount, its equal part."""
    if held.memory_limit_bytes is not None:
        return held.memory_limit_bytes
    share = held.share
    if share is not None and share.memory_bytes:
        return share.memory_bytes
    name, record = KINDS.parse(held.device), _record_of(held)
    if record is not None:
        all_bytes = record.memory_bytes or published_bytes
    else:
        all_bytes = published_bytes or _sum(_memory_of(gpus.get(pci), held) for pci in held.gpus)
    if share is None or not share.is_part:
        return all_bytes or None
    # The name of a counted share says into how many parts its device is divided.
    most = None if name is None or name.shared is None else name.shared.shares
    return all_bytes * share.shares // most if all_bytes and most else None


def share_ratio(held: HeldDevice, memory_bytes: int | None, gpus: Mapping[str, Gpu]) -> float | None:
    """The part of its GPUs that a claim gets with a device, from 0 to 1."""
    name = KINDS.parse(held.device)
    if name is not None and name.kind.word not in _CUT and not is_part(held):
        return 1.0
    total = _sum(_memory_of(gpus.get(pci), held) for pci in held.gpus)
    if memory_bytes and total:
        return min(1.0, memory_bytes / total)
    if name is None or name.shared is None or not name.shared.shares or held.share is None:
        return None
    return held.share.shares / name.shared.shares if name.kind.word not in _CUT else None


def used_bytes(
    entry: Entry, held: HeldDevice, use: NodeUse, owners: _Attributed, listed: Listed
) -> int | None:
    """The memory that a claim uses of a device.

    If the claim has the device alone, it is the device's own use. For a share with limits it is what the
    NVIDIA driver counts for its containers, for any other share the memory of its processes.
    """
    if held.memory_limit_bytes is not None:
        if use.memory is None:
            return None
        # Limits are per container, so a claim's use is the sum over its containers.
        key = entry.uid, held.cdi_device
        return _sum(one.used_bytes for one in use.memory if (one.claim_uid, one.cdi_device) == key)
    if is_part(held):
        if not _are_known(held, use, owners, listed):
            return None
        return _sum(owners.devices.get(held.cdi_device, _DeviceProcesses()).containers.values())
    return _sum(_used_alone(held, use, pci) for pci in held.gpus) if held.gpus else None


def utilisation(held: HeldDevice, use: NodeUse, owners: _Attributed, listed: Listed) -> float | None:
    """How busy a device is, or how busy the processes of a share keep its GPU, from 0 to 1."""
    instance = instance_of(held)
    if not is_part(held):
        busy = [_busy_alone(use, pci, instance) for pci in held.gpus]
        known = [one for one in busy if one is not None]
        return sum(known) / len(known) if known and len(known) == len(busy) else None
    # NVML gives the utilisation of processes for whole GPUs only, not for partitions.
    if instance is not None or not _are_known(held, use, owners, listed):
        return None
    of_device = owners.devices.get(held.cdi_device, _DeviceProcesses())
    # NVML measures each process against the whole GPU.
    found = 0.0
    for pci in held.gpus:
        busy_processes = use.gpus[pci].busy
        if busy_processes is None:
            return None
        pids = of_device.pids.get(pci, ())
        found += sum(one.compute for one in busy_processes if one.pid in pids)
    return min(1.0, found / len(held.gpus))


def _memory_of(gpu: Gpu | None, held: HeldDevice) -> int | None:
    """The memory of a GPU that devices of this kind divide; shares get none of what the driver reserves."""
    if gpu is None:
        return None
    return gpu.shareable_bytes if is_part(held) and instance_of(held) is None else gpu.memory_bytes


def _busy_alone(use: NodeUse, pci: str, instance: Instance | None) -> float | None:
    reading = use.gpus.get(pci)
    if reading is None:
        return None
    if instance is not None:
        return reading.partition_busy.get(instance)
    return None if reading.utilisation is None else reading.utilisation.compute


def _used_alone(held: HeldDevice, use: NodeUse, pci: str) -> int | None:
    reading, instance = use.gpus.get(pci), instance_of(held)
    if reading is None:
        return None
    memory = reading.memory if instance is None else reading.partitions.get(instance)
    return None if memory is None else memory.used_bytes


def _are_known(held: HeldDevice, use: NodeUse, owners: _Attributed, listed: Listed) -> bool:
    """Whether the containers of all processes on its GPUs are known."""
    return held.cdi_device in listed and all(
        pci in use.gpus and use.gpus[pci].processes is not None and pci not in owners.unknown
        for pci in held.gpus
    )


def _sum(amounts: Iterable[int | None]) -> int | None:
    found = list(amounts)
    known = [one for one in found if one is not None]
    return sum(known) if len(known) == len(found) else None


@dataclass(slots=True)
class _DeviceProcesses:
    """The processes of one device of a claim; a container's memory is None if that of one is unknown."""

    containers: dict[ContainerName, int | None] = field(default_factory=dict)
    pids: dict[str, set[int]] = field(default_factory=dict)

    def add(self, pci: str, name: ContainerName, process: ProcessUse) -> None:
        """Add a process of a container on the GPU at this address."""
        before, more = self.containers.get(name, 0), process.memory_bytes
        self.containers[name] = None if before is None or more is None else before + more
        self.pids.setdefault(pci, set()).add(process.pid)


@dataclass(frozen=True, slots=True)
class _Attributed:
    """The processes of devices, by CDI device; ``unknown`` are GPUs with processes of unknown containers."""

    devices: Mapping[str, _DeviceProcesses]
    unknown: frozenset[str]


def attributed(held: Iterable[HeldDevice], use: NodeUse, listed: Listed) -> _Attributed:
    """Assign the processes on the GPUs to the devices of their containers.

    If a container has several devices on one GPU or partition, the first of them gets all of its processes:
    NVML does not say which device a process uses.
    """
    on_gpu: dict[str, list[HeldDevice]] = {}
    for one in held:
        for pci in one.gpus:
            on_gpu.setdefault(pci, []).append(one)
    devices: dict[str, _DeviceProcesses] = {}
    unknown: set[str] = set()
    for pci, reading in use.gpus.items():
        for process in reading.processes or ():
            # It may belong to any share, so the use of all shares of this GPU is unknown.
            if process.pid not in use.containers:
                unknown.add(pci)
                continue
            name = use.containers[process.pid]
            owner = None if name is None else _owner(on_gpu.get(pci, ()), name, process, listed)
            if name is not None and owner is not None:
                devices.setdefault(owner.cdi_device, _DeviceProcesses()).add(pci, name, process)
    return _Attributed(devices, frozenset(unknown))


def _owner(
    held: Iterable[HeldDevice], name: ContainerName, process: ProcessUse, listed: Listed
) -> HeldDevice | None:
    at = None
    if process.gpu_instance is not None and process.compute_instance is not None:
        at = process.gpu_instance, process.compute_instance
    return next(
        (one for one in held if name in listed.get(one.cdi_device, ()) and instance_of(one) == at), None
    )
