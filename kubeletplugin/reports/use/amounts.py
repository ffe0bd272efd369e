"""What a device gives its claim of a GPU, and what of that the claim uses; None for what is not known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kubeletplugin.devices.kinds.partition.record import record_of as partition_record
from kubeletplugin.devices.kinds.vgpu.record import record_of as vgpu_record
from kubeletplugin.reports.use.attributed import Attributed, OfDevice
from kubeletplugin.reports.use.node_use import Listed, NodeUse, instance_of, is_part

if TYPE_CHECKING:
    from driver.hardware.gpu import Gpu
    from kubeletplugin.claims.journal.entry import Entry, HeldDevice
    from kubeletplugin.devices.kinds.kind import HeldKinds
    from kubeletplugin.devices.kinds.partition.record import PartitionRecord
    from kubeletplugin.devices.kinds.vgpu.record import VgpuRecord
    from kubeletplugin.reports.use.gpu_reading import Instance

_CUT = frozenset({"partition", "static", "vgpu"})
"""The kinds whose records, or names, tell a part of a GPU."""


def profile_of(held: HeldDevice, kinds: HeldKinds) -> str:
    """The MIG profile or vGPU type of the device, or of what it is a share of; empty for whole GPUs."""
    name = kinds.parse(held.device)
    word = name.kind.word if name is not None else ""
    found: PartitionRecord | VgpuRecord | None = None
    if word in ("partition", "static"):
        found = partition_record(held)
    elif word == "vgpu":
        found = vgpu_record(held)
    return "" if found is None else found.profile


def allocated_bytes(
    held: HeldDevice, kinds: HeldKinds, published: Callable[[str], int | None], gpus: Mapping[str, Gpu]
) -> int | None:
    """The memory that a claim has with a device; of a share that is counted, its even part."""
    if held.memory is not None:
        return held.memory.guaranteed_bytes
    share = held.share
    if share is not None and share.memory_bytes:
        return share.memory_bytes
    name = kinds.parse(held.device)
    if name is not None and name.kind.word in _CUT:
        all_bytes = kinds.of(held).memory_bytes(held) or published(held.device)
    else:
        all_bytes = published(held.device) or _sum(_has(held, gpus.get(pci)) for pci in held.gpus)
    if share is None or not share.is_part:
        return all_bytes or None
    most = None if name is None or name.shared is None else name.shared.shares
    return all_bytes * share.shares // most if all_bytes and most else None


def share_ratio(
    held: HeldDevice, kinds: HeldKinds, memory_bytes: int | None, gpus: Mapping[str, Gpu]
) -> float | None:
    """The part of its GPUs that a claim has with a device, from 0 to 1."""
    name = kinds.parse(held.device)
    if name is not None and name.kind.word not in _CUT and not is_part(held):
        return 1.0
    total = _sum(_has(held, gpus.get(pci)) for pci in held.gpus)
    if memory_bytes and total:
        return min(1.0, memory_bytes / total)
    if name is None or name.shared is None or not name.shared.shares or held.share is None:
        return None
    return held.share.shares / name.shared.shares if name.kind.word not in _CUT else None


def used_bytes(
    entry: Entry, held: HeldDevice, use: NodeUse, owners: Attributed, listed: Listed
) -> int | None:
    """The memory that a claim uses of a device.

    A device that the claim has alone is asked for as such. Of a share it is what the NVIDIA driver counts for
    its containers where it holds them to limits, and else what its processes have.
    """
    if held.memory is not None:
        if use.memory is None:
            return None
        key = entry.uid, held.cdi_device
        return _sum(one.used_bytes for one in use.memory if (one.claim_uid, one.cdi_device) == key)
    if is_part(held):
        if not _are_known(held, use, owners, listed):
            return None
        return _sum(owners.devices.get(held.cdi_device, OfDevice()).containers.values())
    return _sum(_used_alone(held, use, pci) for pci in held.gpus) if held.gpus else None


def utilisation(held: HeldDevice, use: NodeUse, owners: Attributed, listed: Listed) -> float | None:
    """How busy a device is, or how busy the processes of a share keep its GPU, from 0 to 1."""
    instance = instance_of(held)
    if not is_part(held):
        busy = [_busy_alone(use, pci, instance) for pci in held.gpus]
        known = [one for one in busy if one is not None]
        return sum(known) / len(known) if known and len(known) == len(busy) else None
    if instance is not None or not _are_known(held, use, owners, listed):
        return None
    of_device = owners.devices.get(held.cdi_device, OfDevice())
    found = 0.0
    for pci in held.gpus:
        told = use.gpus[pci].busy
        if told is None:
            return None
        found += sum(one.compute for one in told if one.pid in of_device.pids.get(pci, ()))
    return min(1.0, found / len(held.gpus))


def _has(held: HeldDevice, gpu: Gpu | None) -> int | None:
    """The memory of a GPU of which the device is all or a part; shares have none of what the driver keeps."""
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


def _are_known(held: HeldDevice, use: NodeUse, owners: Attributed, listed: Listed) -> bool:
    """Whether it is known of all processes on its GPUs whose they are."""
    return held.cdi_device in listed and all(
        pci in use.gpus and use.gpus[pci].processes is not None and pci not in owners.unknown
        for pci in held.gpus
    )


def _sum(amounts: Iterable[int | None]) -> int | None:
    found = list(amounts)
    known = [one for one in found if one is not None]
    return sum(known) if len(known) == len(found) else None
