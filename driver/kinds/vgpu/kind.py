"""vGPUs of a host, each of an NVIDIA profile in a slot of its GPU. Prepare makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from driver.devices.device import CounterSet
from driver.devices.gpu_policy import GpuPolicy
from driver.devices.limits import MAX_COUNTERS
from driver.devices.names import gpu_device_name
from driver.devices.region import Region
from driver.hardware.gpu import Gpu, Inventory
from driver.hardware.vgpu_places import VgpuHost
from driver.kinds.forms import Forms, GpuForms
from driver.kinds.kind import OfferedKind, Policies, PolicyField
from driver.kinds.vgpu.devices import one_profile_at_a_time, vgpu_device
from driver.kinds.vgpu.field import FORM, VgpuField, offer_of
from driver.kinds.vgpu.names import parse_vgpu_name
from driver.nvml.vgpu import VgpuType

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
