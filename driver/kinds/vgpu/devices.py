"""Makes the devices of the vGPUs of one GPU: a device for each slot of each profile.

Counters let a GPU have vGPUs of one profile at a time, any number of them up to what it takes, since a host
refuses a vGPU beside those of another profile. A counter of which all vGPUs of a profile take the same cannot
say that: if two of each profile fit, one of each does, too. So the slots differ. In counter ``n`` the vGPU in
slot ``n`` takes nearly all, the others of its profile share the little that is left, and every vGPU of a
later profile takes more than that: whichever profile is there, another one lacks something.
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
"""Before the number of a counter."""

_MOST = 2**63 - 1

PROFILE = "profile"
_FRAMEWORK = "vgpuFramework"
_PCI_BUS_ID = "resource.kubernetes.io/pciBusID"


def one_profile_at_a_time(
    slots: Mapping[str, int],
) -> tuple[dict[str, int], dict[tuple[str, int], dict[str, int]]] | None:
    """The counters, and what the vGPU of each profile in each slot takes of them.

    ``slots`` maps profiles to how many vGPUs of them fit. There are as many counters as slots of the profile
    with the second most, and fewer cannot do: of one counter only one vGPU of a profile can take more than
    half. None where the amounts would not fit into 64 bits.
    """
    order = sorted(slots, key=lambda profile: (slots[profile], profile))
    if len(order) < 2:
        return _only_one(slots)
    light = _light_amounts(order, slots)
    capacity = 2 * max(slots[profile] * light[profile] for profile in order) + 1
    if capacity > _MOST:
        return None
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
    """One counter of slots, by which what takes all of the GPU excludes them."""
    name = f"{_COUNTER}0"
    taken = {(profile, slot): {name: 1} for profile, count in slots.items() for slot in range(count)}
    return {name: len(taken)}, taken


def _light_amounts(order: list[str], slots: Mapping[str, int]) -> dict[str, int]:
    """What a vGPU takes of the counters of other slots: more than all that earlier profiles leave there."""
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
    """What it is, and where: the address is that of the function which a virtual machine is given.

    A mediated device has no address. The address of its GPU would pass the GPU itself through.
    """
    on_instance = kind.gpu_instance_profile is not None
    place = host.place(gpu.pci, slot) if host.framework == "vendor-vfio" else None
    function = None if place is None else inventory.pci.function(place.pci)
    return {
        "type": "vgpu",
        "sharing": "none",
        PROFILE: attribute_text(kind.profile),
        _FRAMEWORK: host.framework,
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
