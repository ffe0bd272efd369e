"""Decides which vGPUs of a GPU are offered, or why none are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from driver.devices.device import CounterSet
from driver.devices.limits import MAX_COUNTERS
from driver.devices.names import gpu_device_name
from driver.kinds.vgpu.counters import one_profile_at_a_time
from driver.kinds.vgpu.devices import vgpu_device
from driver.kinds.vgpu.field import offer_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from driver.devices.gpu_policy import GpuPolicy
    from driver.hardware.gpu import Gpu, Inventory
    from driver.hardware.vgpu_places import VgpuHost
    from driver.kinds.forms import GpuForms
    from driver.nvml.vgpu import VgpuType

NO_HOST = "no vGPU manager runs it, so no vGPUs can be made of it"
NOT_TOLD = "NVML does not tell which vGPUs can be made of it"
NO_PLACE = (
    "it has no virtual functions: make them with NVIDIA's sriov-manage -e, or by virtualFunctions in its rule"
)
BEING_MADE = "its virtual functions are off, and the kubelet plugin is asked to turn them on"
NO_SUCH_PROFILE = "it has none of the vGPU profiles of the configuration"
NO_INSTANCE = "no GPU instance for any of the vGPU profiles of the configuration was made on it"
TOO_MANY = "counters cannot keep so many vGPU profiles apart: name fewer"


def with_vgpus(gpu: Gpu, policy: GpuPolicy, forms: GpuForms, inventory: Inventory) -> GpuForms:
    """The forms with the vGPUs that the rule names; nothing else of a host is for containers."""
    offer = offer_of(policy)
    if offer is None:
        return forms
    if {"virtualization", "vgpu_types"} & gpu.untold or (gpu.vgpu is not None and gpu.vgpu.types is None):
        return forms.unknown(NOT_TOLD)
    if gpu.vgpu is None:
        return forms.nothing(NO_HOST)
    if gpu.vgpu.framework is None:
        asked = offer.enables_virtual and may_get_virtual(gpu, inventory)
        return forms.nothing(BEING_MADE if asked else NO_PLACE)
    wanted = [one for one in gpu.vgpu.types or () if one.profile in offer.profiles]
    wanted.sort(key=lambda one: offer.profiles.index(one.profile))
    if not wanted:
        return forms.nothing(NO_SUCH_PROFILE)
    by_instance = [one for one in wanted if one.gpu_instance_profile is not None]
    if by_instance:
        return _on_instances(gpu, gpu.vgpu, by_instance, inventory, forms)
    return _by_time(gpu, gpu.vgpu, wanted, inventory, forms)


def may_get_virtual(gpu: Gpu, inventory: Inventory) -> bool:
    """Whether a vGPU manager runs it, and it can have virtual functions and has none."""
    function = inventory.pci.function(gpu.pci)
    if gpu.vgpu is None or gpu.vgpu.framework is not None or function is None:
        return False
    return function.total_virtual > 0 and not function.virtual


def _by_time(
    gpu: Gpu, host: VgpuHost, types: Sequence[VgpuType], inventory: Inventory, forms: GpuForms
) -> GpuForms:
    """vGPUs that share the GPU by time: of one profile at a time, as in equal-size mode."""
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
    """vGPUs on the GPU instances that an admin has made: one on each, of the types of its profile.

    The host takes any free instance of the profile, so which slot is whose does not matter.
    """
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
