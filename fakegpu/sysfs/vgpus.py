"""The vGPUs of the pretend kernel: what writes do to them, and their files in both frameworks."""

from __future__ import annotations

import errno
import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import count

from driver.nvml.pci_address import PciAddress
from driver.nvml.vgpu import VgpuType
from fakegpu.sysfs.binding import Node
from fakegpu.sysfs.drivers import NVIDIA_DRIVER
from fakegpu.sysfs.functions import functions_of
from fakegpu.sysfs.vgpu_rules import HostedGpu, Vgpu, create_mdev, refused, remove_mdev, set_type


@dataclass(frozen=True, slots=True)
class LinkTo:
    """A symbolic link to another place below the root."""

    path: str


# Far above the numbers of PCI functions, whose IOMMU groups and vfio devices are numbered from 10 and 0.
_FIRST_MDEV_GROUP, _FIRST_MDEV_DEVICE = 2000, 1000
_FUNCTION = r"devices/.+/([0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
_TYPE_FILE = re.compile(rf"{_FUNCTION}/nvidia/current_vgpu_type\Z")
_CREATE_FILE = re.compile(rf"{_FUNCTION}/mdev_supported_types/nvidia-([0-9]+)/create\Z")
_REMOVE_FILE = re.compile(rf"{_FUNCTION}/([0-9a-f-]{{36}})/remove\Z")

Files = dict[str, str | LinkTo]

_VFIO_MAJOR = 511


@dataclass(frozen=True, slots=True)
class VgpuWrite:
    """A write to a file of a vGPU framework, on the function ``pci``.

    With ``type_id`` it makes a mediated device of that type, with ``uuid`` it removes one; with neither it
    sets the type of a virtual function.
    """

    pci: PciAddress
    type_id: int | None = None
    uuid: str = ""


def vgpu_write(path: str) -> VgpuWrite | None:
    """What a write to a file, by its path below the root, asks for; None if it is not a file of vGPUs."""
    if match := _TYPE_FILE.match(path):
        return VgpuWrite(PciAddress.parse(match[1]))
    if match := _CREATE_FILE.match(path):
        return VgpuWrite(PciAddress.parse(match[1]), type_id=int(match[2]))
    if match := _REMOVE_FILE.match(path):
        return VgpuWrite(PciAddress.parse(match[1]), uuid=match[2])
    return None


def with_vgpu_write(node: Node, write: VgpuWrite, text: str) -> Node:
    """The node after such a write; raises OSError if the kernel refuses it."""
    gpu = _hosted_gpu(node, write.pci)
    if gpu is None or write.pci not in gpu.places:
        raise refused(errno.ENODEV)
    used = [one for one in gpu.vgpus if node.in_use(one.function)]
    if write.uuid:
        new = remove_mdev(gpu, write.uuid, used)
    elif write.type_id is not None:
        new = create_mdev(gpu, write.pci, write.type_id, text, _free(node, write.pci))
    else:
        new = set_type(gpu, write.pci, text, used)
    others = tuple(one for one in node.kernel.vgpus if one not in gpu.vgpus)
    return replace(node, kernel=replace(node.kernel, vgpus=(*others, *new)))


def _hosted_gpu(node: Node, pci: PciAddress) -> HostedGpu | None:
    """The GPU of a physical or virtual function as a host of vGPUs; None unless a vGPU manager has it."""
    host = node.spec.product.vgpu
    known = functions_of(node.spec)
    physical = known[pci].physical or pci
    if host is None or physical not in node.machine.gpus or not node.kernel.has_nvidia(physical):
        return None
    # With SR-IOV vGPUs are made on virtual functions only, without it on the GPU itself.
    has_sriov = node.spec.product.sriov is not None
    own = [physical]
    if has_sriov:
        own = [one for one in node.kernel.functions if known[one].physical == physical]
    places = tuple(sorted(filter(node.kernel.has_nvidia, own), key=lambda one: known[one].number))
    mig = node.machine.gpus[physical].mig
    instances = Counter(one.profile_id for one in mig.instances) if mig.enabled else None
    vgpus = tuple(one for one in node.kernel.vgpus if one.function in places)
    return HostedGpu(host, places, vgpus, instances, on_virtual=has_sriov)


def files_of_vgpus(node: Node, pci: PciAddress) -> dict[str, str | LinkTo]:
    """The files of vGPUs that a function has."""
    gpu = _hosted_gpu(node, pci) if node.spec.product.vgpu is not None else None
    if gpu is None:
        return {}
    folder = functions_of(node.spec)[pci].folder
    return _vgpu_files(gpu, pci, folder, iommufd=node.spec.iommu.iommufd)


def functions_with_other_vgpus(before: Node, after: Node) -> set[PciAddress]:
    """The functions whose vGPU files differ: all functions of each GPU on which anything has changed."""
    if after.spec.product.vgpu is None:
        return set()
    gpus = ((_hosted_gpu(before, pci), _hosted_gpu(after, pci)) for pci in after.machine.gpus)
    changed = [one for pair in gpus if pair[0] != pair[1] for one in pair if one is not None]
    return {place for gpu in changed for place in gpu.places}


def nodes_of_vgpus(node: Node) -> set[str]:
    """The device nodes of mediated devices, as paths below /dev."""
    # Only mediated devices have a UUID; vGPUs of the other framework use the nodes of their function.
    mdevs = [one for one in node.kernel.vgpus if one.uuid]
    devices = {f"vfio/devices/vfio{one.vfio}" for one in mdevs if node.spec.iommu.iommufd}
    return {f"vfio/{one.group}" for one in mdevs} | devices


def without_lost_vgpus(node: Node) -> Node:
    """The node without the vGPUs whose function is no longer bound to the NVIDIA driver."""
    kept = tuple(one for one in node.kernel.vgpus if _has_nvidia(node, one.function))
    if len(kept) == len(node.kernel.vgpus):
        return node
    return replace(node, kernel=replace(node.kernel, vgpus=kept))


def _has_nvidia(node: Node, pci: PciAddress) -> bool:
    physical = functions_of(node.spec)[pci].physical or pci
    functions = node.kernel.functions
    return all(one in functions and functions[one].driver == NVIDIA_DRIVER for one in (pci, physical))


def _free(node: Node, place: PciAddress) -> Vgpu:
    """A vGPU with an IOMMU group and a vfio device number that no other has."""
    groups, devices = ({one.group for one in node.kernel.vgpus}, {one.vfio for one in node.kernel.vgpus})
    group = next(number for number in count(_FIRST_MDEV_GROUP) if number not in groups)
    device = next(number for number in count(_FIRST_MDEV_DEVICE) if number not in devices)
    return Vgpu(place, 0, group=group, vfio=device)


def _vgpu_files(gpu: HostedGpu, place: PciAddress, folder: str, *, iommufd: bool = True) -> Files:
    """The vGPU files of one function of a host; ``folder`` is that of the function, below the root."""
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
    """The files of the vendor-specific framework: one type for each virtual function, 0 for none."""
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
