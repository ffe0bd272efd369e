"""Makes the devices of the vGPUs of one GPU: a device for each slot of each profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.devices.device import Device
from driver.health.problems import taints
from driver.kinds.gpu_attributes import attribute_text, known, physical_attributes
from driver.kinds.vgpu.names import vgpu_device_name
from driver.nvml.mig import Placement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from driver.devices.device import AttributeValue, CounterSet
    from driver.hardware.gpu import Gpu, Inventory
    from driver.hardware.vgpu_places import VgpuHost
    from driver.nvml.vgpu import VgpuType

PROFILE = "profile"
FRAMEWORK = "vgpuFramework"
_PCI_BUS_ID = "resource.kubernetes.io/pciBusID"


def vgpu_device(
    gpu: Gpu,
    host: VgpuHost,
    kind: VgpuType,
    slot: int,
    inventory: Inventory,
    counters: CounterSet,
    consumes: Mapping[str, int],
) -> Device:
    """The vGPU of a type in a slot."""
    attributes = physical_attributes(gpu, inventory) | _attributes(gpu, host, kind, slot, inventory)
    return Device(
        vgpu_device_name(gpu.pci, kind.profile, slot),
        gpu.pci,
        known(attributes),
        {"memory": kind.memory_bytes},
        taints(gpu.problems),
        span=Placement(slot, 1),
        counter_set=counters.name,
        consumes=consumes,
    )


def _attributes(
    gpu: Gpu, host: VgpuHost, kind: VgpuType, slot: int, inventory: Inventory
) -> dict[str, AttributeValue | None]:
    """What it is, and where: the address is that of the function which a virtual machine is given.

    A mediated device has no address, and whoever took that of its GPU would pass the GPU through.
    """
    on_instance = kind.gpu_instance_profile is not None
    place = host.place(gpu.pci, slot) if host.framework == "vendor-vfio" else None
    function = None if place is None else inventory.pci.function(place.pci)
    return {
        "type": "vgpu",
        "sharing": "none",
        PROFILE: attribute_text(kind.profile),
        FRAMEWORK: host.framework,
        "vgpuKind": "mig-backed" if on_instance else "time-sliced",
        "vgpuSeries": series(kind.profile),
        "frameRateLimit": kind.frames_per_second,
        "memoryIsolation": "hardware" if on_instance else None,
        "parentUUID": gpu.uuid,
        "parentPCIBusID": str(gpu.pci),
        _PCI_BUS_ID: None if place is None else str(place.pci),
        "iommuGroup": None if function is None else function.iommu_group,
    }


def series(profile: str) -> str | None:
    """The series, which says what a vGPU is licensed for: ``Q``, ``A``, ``B`` or ``C``."""
    letters = profile.rpartition("-")[2].lstrip("0123456789")
    return letters[0] if letters[:1] in ("Q", "A", "B", "C") else None
