"""The whole GPU, which one claim has for itself, with its NVLinks and all of its memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from driver.devices.device import AttributeValue, Device
from driver.devices.limits import MAX_ATTRIBUTES_AND_CAPACITIES
from driver.devices.names import gpu_device_name, parse_gpu_device_name
from driver.devices.region import Region
from driver.hardware.gpu import Gpu, Inventory
from driver.hardware.topology import nvlink_islands, nvlink_meshes, nvlink_peers, nvlink_widths
from driver.hardware.vgpu import parse_profile
from driver.kinds.fabric import fabric_attributes
from driver.kinds.forms import VGPU_MANAGER, Forms, GpuForms
from driver.kinds.gpu_attributes import attribute_text, known, physical_attributes
from driver.kinds.kind import OfferedKind, Policies, PolicyField
from driver.kinds.memory_limits import MemoryLimitsField, memory_limits
from driver.nvml.api import GPU_CALLS

_MOST_CAPACITIES = 7
"""The capacities of a GPU that is offered whole and in partitions (driver.kinds.partition.kind)."""

# The API allows 32 attributes and capacities together. Fabric partitions add attributes, and they describe
# the NVLinks of a GPU better than these do.
_DROPPED_FIRST = (
    *("cpuAffinity", "nvlinkPeerLinks", "nvlinkPeers", "nvlinkPeerCount"),
    *("pcieSwitches", "nvlinkMesh"),
)
"""The attributes that are left out, in this order, of a GPU that has too many."""

MODE_ON = "MIG mode is on, so the GPU cannot be used as a whole"
MIG_MODE_UNKNOWN = "NVML does not report whether it is in MIG mode"


class WholeKind(OfferedKind):
    """GPUs as a whole."""

    word = "whole"
    form = "whole"
    attribute_type = "gpu"
    opaque = "GpuConfig"
    described = "a GPU"
    by_admin = False
    has_modes = True
    leaves_driver = False
    policy_field: PolicyField | None = MemoryLimitsField()

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        """Each GPU as a whole, except those in MIG mode."""
        islands, peers = nvlink_islands(inventory.gpus), nvlink_peers(inventory.gpus)
        meshes, widths = nvlink_meshes(inventory.gpus), nvlink_widths(inventory.gpus)
        fabric = fabric_attributes(inventory)
        gpus = dict(so_far.gpus)
        for gpu in inventory.gpus:
            if gpu.pci in policies:
                links = _links(gpu, islands.get(gpu.pci), meshes.get(gpu.pci), peers.get(gpu.pci))
                links |= {"nvlinkPeerLinks": _widths(widths.get(gpu.pci, ()))}
                links |= fabric.get(gpu.pci, {})
                more = links | memory_limits(gpu, inventory, policies[gpu.pci])
                forms = GpuForms(_whole_gpu(gpu, inventory, more), whole=True)
                gpus[gpu.pci] = _unless_cut(gpu, forms)
        return Forms(gpus, so_far.others)

    def parse(self, unshared: str) -> tuple[Region, ...] | None:
        """All of the GPU whose address is in the name."""
        pci = parse_gpu_device_name(unshared)
        return None if pci is None else (Region(pci),)


WHOLE = WholeKind()


def _unless_cut(gpu: Gpu, forms: GpuForms) -> GpuForms:
    if gpu.virtualization == "host-vgpu":
        return replace(forms.nothing(VGPU_MANAGER), closed=True)
    if "mig_mode" in gpu.unanswered:
        return forms.unknown(MIG_MODE_UNKNOWN)
    # In MIG mode CUDA runs only in GPU instances, so nothing could use the whole GPU.
    return forms.nothing(MODE_ON) if gpu.mig_enabled else forms


def _memory_isolation(gpu: Gpu) -> str | None:
    """What keeps others off the GPU's memory; None if that is not known, or nothing does."""
    # The physical GPU of a vGPU may have other vGPUs, which share its memory unless each has a GPU instance.
    if gpu.virtualization == "vgpu":
        profile = parse_profile(gpu.vgpu_profile) if gpu.vgpu_profile else None
        return "hardware" if profile is not None and profile.isolates_memory else None
    return None if "virtualization" in gpu.unanswered else "hardware"


def _vgpu(gpu: Gpu) -> dict[str, AttributeValue | None]:
    """The attributes of a vGPU, in a guest; all None elsewhere."""
    profile = parse_profile(gpu.vgpu_profile) if gpu.vgpu_profile else None
    found = gpu.vgpu_license
    return {
        "virtualization": gpu.virtualization,
        "vgpuProfile": attribute_text(gpu.vgpu_profile),
        "vgpuKind": None if profile is None else profile.kind,
        "vgpuLicenseStatus": None if found is None else ("Licensed" if found.licensed else "Unlicensed"),
        "vgpuLicenseProduct": None if found is None else attribute_text(found.product),
    }


def _whole_gpu(gpu: Gpu, inventory: Inventory, more: Mapping[str, AttributeValue | None]) -> Device:
    attributes = known(
        {
            **physical_attributes(gpu, inventory),
            **more,
            "type": WHOLE.attribute_type,
            "uuid": gpu.uuid,
            "sharing": "none",
            "memoryIsolation": _memory_isolation(gpu),
            "migCapable": gpu.mig_capable,
            "cpuAffinity": attribute_text(gpu.cpu_affinity),
            "pcieSwitches": attribute_text("/".join(gpu.pcie_switches)),
            **_vgpu(gpu),
        }
    )
    capacity = {} if gpu.memory_bytes is None else {"memory": gpu.memory_bytes}
    return Device(gpu_device_name(gpu.pci), gpu.pci, _with_room(attributes), capacity)


def _with_room(attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """The attributes without as many as needed to leave room for all capacities, in every form of the GPU."""
    found = dict(attributes)
    for name in _DROPPED_FIRST:
        if len(found) > MAX_ATTRIBUTES_AND_CAPACITIES - _MOST_CAPACITIES:
            found.pop(name, None)
    return found


def _links(
    gpu: Gpu, island: str | None, mesh: str | None, peers: tuple[int, ...] | None
) -> dict[str, AttributeValue | None]:
    """The attributes of the GPU's NVLinks within the node, and of its fabric across nodes."""
    return {
        "nvlinkDomain": island,
        "nvlinkMesh": mesh,
        "nvlinkPeers": attribute_text(",".join(map(str, peers))) if peers else None,
        "nvlinkPeerCount": None if peers is None else len(peers),
        "fabricClique": attribute_text(gpu.fabric_clique) if _is_in_fabric(gpu) else None,
    }


def _is_in_fabric(gpu: Gpu) -> bool:
    """Whether the fabric is complete and without error, as far as the last check knows."""
    return not any(
        problem.call == GPU_CALLS["fabric"] and problem.reason == "fabric" for problem in gpu.problems
    )


def _widths(counts: tuple[int, ...]) -> str | None:
    """The number of links to each peer: ``1,1,2,2``, or only ``18`` if it is the same for all peers."""
    return attribute_text(",".join(map(str, counts if len(set(counts)) > 1 else counts[:1])))
