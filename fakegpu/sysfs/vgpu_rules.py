"""Which vGPUs a host can make in addition to those that exist: the rules of NVIDIA's vGPU manager.

A time-sliced GPU is in equal-size mode by default: all of its vGPUs have one size in the vendor-specific
framework, and one type if they are mediated devices. In MIG mode each vGPU takes a GPU instance of its
profile (NVIDIA vGPU guide, "Valid vGPU configurations on a single GPU").
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from driver.nvml.pci_address import PciAddress
from driver.nvml.vgpu import VgpuType
from fakegpu.machine.vgpu_types import VgpuHost

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Vgpu:
    """A vGPU: its function, its type and, if it is a mediated device, its UUID.

    ``group`` and ``vfio`` are the numbers of a mediated device's IOMMU group and of its vfio device. A vGPU
    of the other framework uses those of its virtual function.
    """

    function: PciAddress
    type_id: int
    uuid: str = ""
    group: int = 0
    vfio: int = 0


@dataclass(frozen=True, slots=True)
class HostedGpu:
    """One GPU of a host, its vGPUs, and what else can be made of it.

    ``places`` are its virtual functions, or the GPU alone if it has none. ``instances`` counts its GPU
    instances by profile id, None with MIG mode off. ``on_virtual``: places are virtual functions, each of
    which takes one vGPU.
    """

    host: VgpuHost
    places: tuple[PciAddress, ...]
    vgpus: tuple[Vgpu, ...]
    instances: Mapping[int, int] | None
    on_virtual: bool = True

    @property
    def types(self) -> tuple[VgpuType, ...]:
        """The vGPU types that the kernel shows: those on GPU instances in MIG mode, the others without it."""
        return self.host.supported(mig_enabled=self.instances is not None)

    def on(self, place: PciAddress) -> tuple[Vgpu, ...]:
        """The vGPUs on a function."""
        return tuple(one for one in self.vgpus if one.function == place)

    def room(self, place: PciAddress, kind: VgpuType) -> int:
        """How many more vGPUs of a type can be made on a function."""
        if self.on_virtual and self.on(place):
            return 0
        most = 1 if self.on_virtual else kind.most
        return min(most, self._left(kind))

    def creatable(self, place: PciAddress) -> tuple[VgpuType, ...]:
        """The types of which one more vGPU can be made on a function."""
        return tuple(one for one in self.types if self.room(place, one))

    def _left(self, kind: VgpuType) -> int:
        by_id = {one.id: one for one in self.host.types}
        there = [by_id[one.type_id] for one in self.vgpus]
        if self.instances is not None:
            taken = Counter(one.gpu_instance_profile for one in there)
            profile = kind.gpu_instance_profile
            return 0 if profile is None else self.instances.get(profile, 0) - taken[profile]
        return kind.most - len(there) if all(self._are_alike(kind, one) for one in there) else 0

    def _are_alike(self, one: VgpuType, other: VgpuType) -> bool:
        if self.host.framework == "mdev":
            return one.id == other.id
        return one.memory_bytes == other.memory_bytes


def set_type(gpu: HostedGpu, place: PciAddress, text: str, used: Iterable[Vgpu]) -> tuple[Vgpu, ...]:
    """The vGPUs of the GPU after a write to ``current_vgpu_type``; raises OSError as NVIDIA's module does.

    ``used`` are the vGPUs that virtual machines use.
    """
    try:
        number = int(text)
    except ValueError:
        raise refused(errno.EINVAL) from None
    there = gpu.on(place)
    # The type changes only from none to one, or from one to none (0).
    if bool(there) == bool(number):
        raise refused(errno.EPERM)
    if number == 0:
        return _without(gpu, there[0], used)
    if number not in {one.id for one in gpu.creatable(place)}:
        raise refused(errno.EINVAL)
    return (*gpu.vgpus, Vgpu(place, number))


def create_mdev(gpu: HostedGpu, place: PciAddress, type_id: int, text: str, free: Vgpu) -> tuple[Vgpu, ...]:
    """The vGPUs of the GPU after a write to ``create``; raises OSError as the mdev core does.

    ``free`` has the IOMMU group and vfio device number of the new one.
    """
    uuid = text.strip()
    if _UUID.fullmatch(uuid) is None:
        raise refused(errno.EINVAL)
    if any(one.uuid == uuid for one in gpu.vgpus):
        raise refused(errno.EEXIST)
    kind = next((one for one in gpu.types if one.id == type_id), None)
    if kind is None:
        raise refused(errno.ENOENT)
    if not gpu.room(place, kind):
        raise refused(errno.ENOSPC)
    return (*gpu.vgpus, Vgpu(place, type_id, uuid, free.group, free.vfio))


def remove_mdev(gpu: HostedGpu, uuid: str, used: Iterable[Vgpu]) -> tuple[Vgpu, ...]:
    """The vGPUs of the GPU after a write to ``remove`` of a mediated device; raises OSError."""
    found = next((one for one in gpu.vgpus if one.uuid == uuid), None)
    if found is None:
        raise refused(errno.ENOENT)
    return _without(gpu, found, used)


def refused(number: int) -> OSError:
    """The error of a write that the kernel refuses."""
    return OSError(number, os.strerror(number))


def _without(gpu: HostedGpu, gone: Vgpu, used: Iterable[Vgpu]) -> tuple[Vgpu, ...]:
    if gone in used:
        raise refused(errno.EBUSY)
    return tuple(one for one in gpu.vgpus if one != gone)
