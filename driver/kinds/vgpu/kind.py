"""vGPUs of a host, each of an NVIDIA profile in a slot of its GPU. Prepare makes them.

A host refuses a vGPU beside those of another profile, so the counters allow vGPUs of only one profile at a
time, up to the number that the GPU takes. If all vGPUs of a profile consumed the same of each counter this
would not work: if two of each profile fit, then also one of each. So the slots differ. In counter ``n`` the
vGPU in slot ``n`` takes nearly everything, and the others of its profile share the small rest. Every vGPU of
a later profile takes more than that rest. So no two profiles fit together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from driver.devices.device import AttributeValue, CounterSet, Device
from driver.devices.gpu_policy import GpuPolicy
from driver.devices.limits import MAX_COUNTERS
from driver.devices.names import gpu_device_name
from driver.devices.region import Region
from driver.hardware.gpu import Gpu, Inventory
from driver.hardware.vgpu_places import VgpuHost
from driver.kinds.forms import Forms, GpuForms
from driver.kinds.gpu_attributes import attribute_text, known, physical_attributes
from driver.kinds.kind import OfferedKind, Policies, PolicyField
from driver.kinds.vgpu.field import FORM, VgpuField, offer_of
from driver.kinds.vgpu.names import parse_vgpu_name, vgpu_device_name
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


NO_HOST = "no vGPU manager runs it, so no vGPUs can be made of it"
VGPUS_UNKNOWN = "NVML does not report which vGPUs can be made of it"
NO_PLACE = (
    "it has no virtual functions: make them with NVIDIA's sriov-manage -e, or set virtualFunctions in its "
    "rule"
)
BEING_MADE = "its virtual functions are off, and the kubelet plugin is about to turn them on"
NO_SUCH_PROFILE = "it has none of the vGPU profiles of the configuration"
NO_INSTANCE = "it has no GPU instance for any of the vGPU profiles of the configuration"
TOO_MANY = "the counters of a device cannot keep so many vGPU profiles apart: use fewer"


def _with_vgpus(gpu: Gpu, policy: GpuPolicy, forms: GpuForms, inventory: Inventory) -> GpuForms:
    """The forms with the vGPUs that the rule names."""
    offer = offer_of(policy)
    if offer is None:
        return forms
    if {"virtualization", "vgpu_types"} & gpu.unanswered or (gpu.vgpu is not None and gpu.vgpu.types is None):
        return forms.unknown(VGPUS_UNKNOWN)
    if gpu.vgpu is None:
        return forms.nothing(NO_HOST)
    if gpu.vgpu.framework is None:
        is_requested = offer.enables_virtual and may_get_virtual(gpu, inventory)
        return forms.nothing(BEING_MADE if is_requested else NO_PLACE)
    wanted = [one for one in gpu.vgpu.types or () if one.profile in offer.profiles]
    wanted.sort(key=lambda one: offer.profiles.index(one.profile))
    if not wanted:
        return forms.nothing(NO_SUCH_PROFILE)
    by_instance = [one for one in wanted if one.gpu_instance_profile is not None]
    if by_instance:
        return _on_instances(gpu, gpu.vgpu, by_instance, inventory, forms)
    return _by_time(gpu, gpu.vgpu, wanted, inventory, forms)


def may_get_virtual(gpu: Gpu, inventory: Inventory) -> bool:
    """Whether the GPU has a vGPU manager, and supports virtual functions and has none."""
    function = inventory.pci.function(gpu.pci)
    if gpu.vgpu is None or gpu.vgpu.framework is not None or function is None:
        return False
    return function.total_virtual > 0 and not function.virtual


def _by_time(
    gpu: Gpu, host: VgpuHost, types: Sequence[VgpuType], inventory: Inventory, forms: GpuForms
) -> GpuForms:
    """vGPUs that share the GPU by time: of one profile at a time, as in equal-size mode."""
    # With SR-IOV each vGPU lies on a virtual function of its own; without, they all lie on the GPU itself.
    most = None if host.is_on(gpu.pci) else len(host.places)
    slots = {one.profile: one.most if most is None else min(one.most, most) for one in types}
    found = one_profile_at_a_time(slots)
    if found is None or len(found[0]) > MAX_COUNTERS:
        return forms.nothing(TOO_MANY)
    counters, taken = CounterSet(gpu_device_name(gpu.pci), gpu.pci, found[0]), found[1]
    devices = tuple(
        vgpu_device(gpu, host, one, slot, inventory, counters, taken[one.profile, slot])
        for one in types
        for slot in range(slots[one.profile])
    )
    return replace(forms, whole=False, partitions=devices, counters=counters, withheld=())


def _on_instances(
    gpu: Gpu, host: VgpuHost, types: Sequence[VgpuType], inventory: Inventory, forms: GpuForms
) -> GpuForms:
    """vGPUs on the GPU instances that an admin has made: one on each, of the vGPU types for its profile."""
    # The host picks any free instance of the profile, so it does not matter which slot belongs to which.
    starts = {
        instance.placement.start: instance.profile_id
        for instance in (gpu.mig.instances if gpu.mig else ())
        if host.place(gpu.pci, instance.placement.start) is not None
    }
    profiles = {one.gpu_instance_profile for one in types}
    used = sorted(start for start, profile in starts.items() if profile in profiles)
    if not used:
        return forms.nothing(NO_INSTANCE)
    amounts = {f"instance-{start}": 1 for start in used}
    counters = CounterSet(gpu_device_name(gpu.pci), gpu.pci, amounts)
    devices = tuple(
        vgpu_device(gpu, host, one, start, inventory, counters, {f"instance-{start}": 1})
        for one in types
        for start in used
        if starts[start] == one.gpu_instance_profile
    )
    return replace(forms, whole=False, partitions=devices, counters=counters, withheld=())


class VgpuKind(OfferedKind):
    """vGPUs that are published before they exist."""

    word = "vgpu"
    form = FORM
    attribute_type = "vgpu"
    opaque = "VfioDeviceConfig"
    described = "a vGPU"
    by_admin = False
    has_modes = False
    leaves_driver = False
    policy_field: PolicyField | None = VgpuField()

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        """The vGPUs of the GPUs whose rules name vGPU profiles."""
        gpus = {
            gpu.pci: _with_vgpus(gpu, policies[gpu.pci], so_far.gpus[gpu.pci], inventory)
            for gpu in inventory.gpus
            if gpu.pci in policies and gpu.pci in so_far.gpus and not so_far.gpus[gpu.pci].doubtful
        }
        return replace(so_far, gpus={**so_far.gpus, **gpus})

    def parse(self, unshared: str) -> tuple[Region, ...] | None:
        """Its slot."""
        name = parse_vgpu_name(unshared)
        return None if name is None else (name.region,)

    def title(self, unshared: str, attributes: Mapping[str, Any]) -> str:
        """The profile from the attributes, else from the name."""
        name = parse_vgpu_name(unshared)
        return str(attributes.get("profile") or (name.profile if name else unshared))

    def position(self, unshared: str) -> str:
        """The slot."""
        name = parse_vgpu_name(unshared)
        return "" if name is None else f"slot {name.slot}"


VGPU = VgpuKind()
