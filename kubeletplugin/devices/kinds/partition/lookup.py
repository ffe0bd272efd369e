"""Finds out what the name of a partition means on its GPU, within a job of the GPU's lane."""

from __future__ import annotations

from driver.errors import ClaimRefused
from driver.kinds.partition.names import PartitionName, profile_slug
from driver.nvml.api import NotSupported, NvmlDevice
from driver.nvml.deadline import Watch
from driver.nvml.mig import GpuInstanceProfile, MigDevice, partition_name
from kubeletplugin.devices.kinds.partition.gpu_instances import GpuInstances
from kubeletplugin.devices.kinds.partition.record import PartitionRecord

_ANEW = "delete the pod, so that it is scheduled anew with a device that exists"


def locate_made(device: NvmlDevice, watch: Watch, name: PartitionName) -> PartitionRecord:
    """A partition that is made on request: its profile and its place, which need not exist yet.

    Raises ClaimRefused where the GPU has no such profile, or none at that place.
    """
    profiles = _profiles(device, watch)
    for profile in profiles:
        if profile_slug(profile.name) != name.profile:
            continue
        places = watch("gpu_instance_placements", lambda: device.gpu_instance_placements(profile.id))  # noqa: B023
        for place in places:
            if place.start == name.start:
                return PartitionRecord(
                    profile.name, profile.id, place.start, place.size, memory_bytes=profile.memory_bytes
                )
        starts = ", ".join(str(place.start) for place in places)
        raise ClaimRefused(
            f"on GPU {name.pci} a partition {profile.name} cannot begin at memory slice {name.start}, "
            f"only at {starts}",
            _ANEW,
        )
    offered = ", ".join(profile.name for profile in profiles) or "none: it knows no MIG"
    raise ClaimRefused(
        f"GPU {name.pci} has no MIG profile {name.profile}; those that it has are {offered}", _ANEW
    )


def locate_static(device: NvmlDevice, watch: Watch, name: PartitionName) -> PartitionRecord:
    """A partition that exists, whoever made it; raises ClaimRefused where it is not there (any more)."""
    profiles = {profile.id: profile for profile in _profiles(device, watch)}
    instances = GpuInstances(name.pci, device, watch)
    owners = {owner.id: owner for owner in instances.existing() if owner.placement.start == name.start}
    for seen in watch("mig_devices", device.mig_devices) if owners else ():
        owner = owners.get(seen.gpu_instance_id)
        profile = profiles.get(owner.profile_id) if owner else None
        if owner is None or profile is None:
            continue
        found = partition_name(profile, seen.compute_instance_slices)
        if profile_slug(found) == name.profile and _is_meant(instances, seen, name):
            return PartitionRecord(
                found,
                owner.profile_id,
                owner.placement.start,
                owner.placement.size,
                gpu_instance_id=owner.id,
                compute_instance_id=seen.compute_instance_id,
                uuid=seen.uuid,
                memory_bytes=profile.memory_bytes,
            )
    raise ClaimRefused(
        f"the partition {name.profile} at memory slice {name.start} of GPU {name.pci} is not there any more",
        _ANEW,
    )


def _profiles(device: NvmlDevice, watch: Watch) -> tuple[GpuInstanceProfile, ...]:
    try:
        return watch("gpu_instance_profiles", device.gpu_instance_profiles)
    except NotSupported:
        return ()


def _is_meant(instances: GpuInstances, seen: MigDevice, name: PartitionName) -> bool:
    """Whether the part of a GPU instance is the one that the name tells by its first compute slice."""
    if name.compute_start is None:
        return True
    return any(
        inside.id == seen.compute_instance_id and inside.placement.start == name.compute_start
        for inside in instances.inside(seen.gpu_instance_id)
    )
