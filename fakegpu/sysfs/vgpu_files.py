"""Which files of vGPUs the pretend kernel shows, in both frameworks; paths and links as in ``tree``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu.sysfs.entries import LinkTo

if TYPE_CHECKING:
    from driver.nvml.pci_address import PciAddress
    from driver.nvml.vgpu import VgpuType
    from fakegpu.sysfs.vgpu_rules import HostedGpu, Vgpu

Files = dict[str, str | LinkTo]

_VFIO_MAJOR = 511


def vgpu_files(gpu: HostedGpu, place: PciAddress, folder: str, *, iommufd: bool = True) -> Files:
    """The files of one function of a host, whose folder below the root this is."""
    if place not in gpu.places:
        return {}
    if gpu.host.framework == "vfio":
        return _of_vendor(gpu, place, folder)
    found: Files = {f"class/mdev_bus/{place}": LinkTo(folder)}
    for kind in gpu.types:
        found |= _mdev_type(gpu, place, kind, f"{folder}/mdev_supported_types/nvidia-{kind.id}")
    for vgpu in gpu.on(place):
        found |= _mdev(vgpu, folder, iommufd=iommufd)
    return found


def _of_vendor(gpu: HostedGpu, place: PciAddress, folder: str) -> Files:
    lines = (f"{kind.id:<5d} : {kind.name}\n" for kind in gpu.creatable(place))
    current = next((one.type_id for one in gpu.on(place)), 0)
    return {
        f"{folder}/nvidia/creatable_vgpu_types": "ID    : vGPU Name\n" + "".join(lines),
        f"{folder}/nvidia/current_vgpu_type": f"{current}\n",
    }


def _mdev_type(gpu: HostedGpu, place: PciAddress, kind: VgpuType, folder: str) -> Files:
    mib = kind.memory_bytes // 2**20
    heads, frames = 1 if kind.class_name == "Compute" else 4, kind.frames_per_second or "N/A"
    description = (
        f"num_heads={heads}, frl_config={frames}, framebuffer={mib}M, "
        f"max_resolution=4096x2160, max_instance={kind.most}\n"
    )
    found: Files = {
        f"{folder}/name": f"{kind.name}\n",
        f"{folder}/description": description,
        f"{folder}/device_api": "vfio-pci\n",
        f"{folder}/available_instances": f"{gpu.room(place, kind)}\n",
        f"{folder}/create": "",
    }
    for vgpu in gpu.on(place):
        if vgpu.type_id == kind.id:
            parent = folder.rpartition("/mdev_supported_types/")[0]
            found[f"{folder}/devices/{vgpu.uuid}"] = LinkTo(f"{parent}/{vgpu.uuid}")
    return found


def _mdev(vgpu: Vgpu, folder: str, *, iommufd: bool) -> Files:
    own = f"{folder}/{vgpu.uuid}"
    group = f"kernel/iommu_groups/{vgpu.group}"
    found: Files = {
        f"{own}/remove": "",
        f"{own}/mdev_type": LinkTo(f"{folder}/mdev_supported_types/nvidia-{vgpu.type_id}"),
        f"{own}/iommu_group": LinkTo(group),
        f"{group}/devices/{vgpu.uuid}": LinkTo(own),
        f"bus/mdev/devices/{vgpu.uuid}": LinkTo(own),
        f"{own}/vfio-dev/vfio{vgpu.vfio}/device": LinkTo(own),
    }
    if iommufd:
        found[f"{own}/vfio-dev/vfio{vgpu.vfio}/dev"] = f"{_VFIO_MAJOR}:{vgpu.vfio}\n"
    return found
