"""Makes the devices of the vGPUs of one GPU: a device for each slot of each profile.

A host refuses a vGPU beside those of another profile, so the counters allow vGPUs of only one profile at a
time, up to the number that the GPU takes. If all vGPUs of a profile consumed the same of each counter this
would not work: if two of each profile fit, then also one of each. So the slots differ. In counter ``n`` the
vGPU in slot ``n`` takes nearly everything, and the others of its profile share the small rest. Every vGPU of
a later profile takes more than that rest. So no two profiles fit together.
"""

from __future__ import annotations

from collections.abc import Mapping

from driver.devices.device import AttributeValue, CounterSet, Device
from driver.hardware.gpu import Gpu, Inventory
from driver.hardware.vgpu_places import VgpuHost
from driver.health.problems import taints
from driver.kinds.gpu_attributes import attribute_text, known, physical_attributes
from driver.kinds.vgpu.names import vgpu_device_name
from driver.nvml.mig import Placement
from driver.nvml.vgpu import VgpuType

_COUNTER = "vgpu-"
# The API stores the amounts of counters as quantities, which Kubernetes handles as 64 bits.
_MOST = 2**63 - 1


def one_profile_at_a_time(
    slots: Mapping[str, int],
) -> tuple[dict[str, int], dict[tuple[str, int], dict[str, int]]] | None:
    """The counters, and what the vGPU of each profile in each slot consumes of them.

    ``slots`` maps profiles to how many vGPUs of them fit. None if the amounts do not fit into 64 bits.
    """
    order = sorted(slots, key=lambda profile: (slots[profile], profile))
    if len(order) < 2:
        return _only_one(slots)
    light = _light_amounts(order, slots)
    capacity = 2 * max(slots[profile] * light[profile] for profile in order) + 1
    if capacity > _MOST:
        return None
    # As many counters as the profile with the second most slots has slots. Fewer are not enough: only one
    # vGPU of a profile can take more than half of a counter.
    counters = [f"{_COUNTER}{number}" for number in range(slots[order[-2]])]
    taken = {}
    for profile in order:
        near_all = capacity - (slots[profile] - 1) * light[profile]
        for slot in range(slots[profile]):
            heavy = {counters[slot]: near_all} if profile != order[-1] else {}
            taken[profile, slot] = dict.fromkeys(counters, light[profile]) | heavy
    return dict.fromkeys(counters, capacity), taken


def _only_one(
    slots: Mapping[str, int],
) -> tuple[dict[str, int], dict[tuple[str, int], dict[str, int]]]:
    """One counter, with an amount of 1 for each slot; a device that takes all of the GPU excludes them."""
    name = f"{_COUNTER}0"
    taken = {(profile, slot): {name: 1} for profile, count in slots.items() for slot in range(count)}
    return {name: len(taken)}, taken


def _light_amounts(order: list[str], slots: Mapping[str, int]) -> dict[str, int]:
    """What a vGPU takes of the counters of other slots: more than earlier profiles leave free there."""
    light: dict[str, int] = {}
    left = 0
    for profile in order:
        light[profile] = left + 1
        left = max(left, (slots[profile] - 1) * light[profile])
    return light


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
    """The attributes of the vGPU; its PCI address is that of the function which a virtual machine gets."""
    # A mediated device has no PCI address. With the address of its GPU a virtual machine would get the GPU.
    on_instance = kind.gpu_instance_profile is not None
    place = host.place(gpu.pci, slot) if host.framework == "vendor-vfio" else None
    function = None if place is None else inventory.pci.function(place.pci)
    return {
        "type": "vgpu",
        "sharing": "none",
        "profile": attribute_text(kind.profile),
        "vgpuFramework": host.framework,
        "vgpuKind": "mig-backed" if on_instance else "time-sliced",
        "vgpuSeries": series(kind.profile),
        "frameRateLimit": kind.frames_per_second,
        "memoryIsolation": "hardware" if on_instance else None,
        "parentUUID": gpu.uuid,
        "parentPCIBusID": str(gpu.pci),
        "resource.kubernetes.io/pciBusID": None if place is None else str(place.pci),
        "iommuGroup": None if function is None else function.iommu_group,
    }


def series(profile: str) -> str | None:
    """The series of a profile, by which a vGPU is licensed: ``Q``, ``A``, ``B`` or ``C``."""
    letters = profile.rpartition("-")[2].lstrip("0123456789")
    return letters[0] if letters[:1] in ("Q", "A", "B", "C") else None
