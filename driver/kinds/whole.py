"""The whole GPU: what one claim has for itself, with its NVLinks and all of its memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from driver.devices.device import AttributeValue, Device
from driver.devices.limits import MAX_ATTRIBUTES_AND_CAPACITIES
from driver.devices.names import gpu_device_name, parse_gpu_device_name
from driver.devices.region import Region
from driver.hardware.gpu import Gpu, Inventory
from driver.hardware.topology import nvlink_islands, nvlink_meshes, nvlink_peers, nvlink_widths
from driver.hardware.vgpu import parse_profile
from driver.health.problems import taints
from driver.kinds.fabric import fabric_attributes
from driver.kinds.forms import VGPU_MANAGER, Forms, GpuForms
from driver.kinds.gpu_attributes import attribute_text, known, physical_attributes
from driver.kinds.kind import Policies, PolicyField
from driver.kinds.memory_limits import MemoryLimitsField, memory_limits
from driver.nvml.pci_address import PciAddress

_OF_A_CUT_GPU = 7
"""The capacities of a GPU that is offered whole and in partitions (driver.kinds.partition.devices)."""

_LEAST_NEEDED = (
    *("cpuAffinity", "nvlinkPeerLinks", "nvlinkPeers", "nvlinkPeerCount"),
    *("pcieSwitches", "nvlinkMesh"),
)
"""What is left out first of a GPU that says too much: fabric partitions tell better what NVLinks connect."""

MODE_ON = "MIG mode is on, so the GPU cannot be used as a whole"
MODE_NOT_TOLD = "NVML does not tell whether it is in MIG mode"


class WholeKind:
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
        """Each GPU as a whole; one in MIG mode runs nothing outside its instances, so it is kept back."""
        islands, peers = nvlink_islands(inventory.gpus), nvlink_peers(inventory.gpus)
        meshes, widths = nvlink_meshes(inventory.gpus), nvlink_widths(inventory.gpus)
        fabric = fabric_attributes(inventory)
        gpus = dict(so_far.gpus)
        for gpu in inventory.gpus:
            if gpu.pci in policies:
                links = _links(gpu, islands.get(gpu.pci), meshes.get(gpu.pci), peers.get(gpu.pci))
                links |= {"nvlinkPeerLinks": _widths(widths.get(gpu.pci, ()))}
                links |= fabric.get(gpu.pci, {})
                told = links | memory_limits(gpu, inventory, policies[gpu.pci])
                forms = GpuForms(_whole_gpu(gpu, inventory, told), whole=True)
                gpus[gpu.pci] = _unless_cut(gpu, forms)
        return Forms(gpus, so_far.others)

    def parse(self, unshared: str) -> tuple[Region, ...] | None:
        """All of the GPU whose address the name is."""
        pci = parse_gpu_device_name(unshared)
        return None if pci is None else (Region(pci),)

    def stored(self, unshared: str, consumes: Mapping[str, int]) -> tuple[Region, ...]:
        """All of the GPU, whatever it consumes."""
        return self.parse(unshared) or ()

    def place(self, unshared: str, gpus: Mapping[PciAddress, Gpu]) -> tuple[Region, ...]:
        """All of the GPU."""
        return self.parse(unshared) or ()

    def title(self, unshared: str, attributes: Mapping[str, Any]) -> str:
        """Nothing: it is the GPU itself."""
        return ""

    def position(self, unshared: str) -> str:
        """Nothing: it is all of the GPU."""
        return ""


WHOLE = WholeKind()


def _unless_cut(gpu: Gpu, forms: GpuForms) -> GpuForms:
    if gpu.virtualization == "host-vgpu":
        return replace(forms.nothing(VGPU_MANAGER), closed=True)
    if "mig_mode" in gpu.unanswered:
        return forms.unknown(MODE_NOT_TOLD)
    return forms.nothing(MODE_ON) if gpu.mig_enabled else forms


def _memory_isolation(gpu: Gpu) -> str | None:
    """Nobody else is on a whole GPU; behind a vGPU others may be, unless it has an instance for itself."""
    if gpu.virtualization == "vgpu":
        profile = parse_profile(gpu.vgpu_profile or "")
        return "hardware" if profile is not None and profile.isolates_memory else None
    return None if "virtualization" in gpu.unanswered else "hardware"


def _vgpu(gpu: Gpu) -> dict[str, AttributeValue | None]:
    """What a vGPU guest knows of its vGPU; nothing elsewhere."""
    profile = parse_profile(gpu.vgpu_profile or "")
    told = gpu.vgpu_license
    return {
        "virtualization": gpu.virtualization,
        "vgpuProfile": attribute_text(gpu.vgpu_profile),
        "vgpuKind": None if profile is None else profile.kind,
        "vgpuLicenseStatus": None if told is None else ("Licensed" if told.licensed else "Unlicensed"),
        "vgpuLicenseProduct": None if told is None else attribute_text(told.product),
    }


def _whole_gpu(gpu: Gpu, inventory: Inventory, told: Mapping[str, AttributeValue | None]) -> Device:
    attributes = known(
        {
            **physical_attributes(gpu, inventory),
            **told,
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
    return Device(gpu_device_name(gpu.pci), gpu.pci, _with_room(attributes), capacity, taints(gpu.problems))


def _with_room(attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """As many of the attributes as leave room for all capacities, in whatever form the GPU is offered."""
    found = dict(attributes)
    for name in _LEAST_NEEDED:
        if len(found) > MAX_ATTRIBUTES_AND_CAPACITIES - _OF_A_CUT_GPU:
            found.pop(name, None)
    return found


def _links(
    gpu: Gpu, island: str | None, mesh: str | None, peers: tuple[int, ...] | None
) -> dict[str, AttributeValue | None]:
    """The GPU's place in the NVLinks of its node and in a fabric over several nodes."""
    return {
        "nvlinkDomain": island,
        "nvlinkMesh": mesh,
        "nvlinkPeers": attribute_text(",".join(map(str, peers))) if peers else None,
        "nvlinkPeerCount": None if peers is None else len(peers),
        "fabricClique": attribute_text(gpu.fabric_clique),
    }


def _widths(counts: tuple[int, ...]) -> str | None:
    """One number where all peers are reached by as many links, else one for each: ``18``, ``1,1,2,2``."""
    return attribute_text(",".join(map(str, counts if len(set(counts)) > 1 else counts[:1])))
