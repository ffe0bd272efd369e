"""Asks one GPU everything about MIG: what it offers, and what exists on it now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.hardware.gpu import GpuMig, Partition, PlacedProfile
from driver.nvml.api import InstanceNotFound, NotSupported
from driver.nvml.mig import partition_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from driver.nvml.api import MigMode, NvmlDevice
    from driver.nvml.deadline import Watch
    from driver.nvml.mig import GpuInstance, GpuInstanceProfile, MigDevice

_NEEDS_RESET = "Ampere"
"""The one architecture with MIG whose mode changes with a reset only (MIG user guide)."""


def walk_mig(device: NvmlDevice, watch: Watch, mode: MigMode) -> GpuMig:
    """What MIG is on a GPU whose mode was just read; raises NvmlError.

    An instance that is destroyed while this looks is left out.
    """
    profiles = tuple(
        PlacedProfile(
            profile,
            watch(
                "gpu_instance_placements",
                lambda profile=profile: device.gpu_instance_placements(profile.id),  # type: ignore[misc]
            ),
        )
        for profile in watch("gpu_instance_profiles", device.gpu_instance_profiles)
    )
    without_reset = changes_without_reset(device, watch)
    if not mode.enabled:
        return GpuMig(enabled=False, pending=mode.pending, without_reset=without_reset, profiles=profiles)
    instances = watch("gpu_instances", device.gpu_instances)
    seen = {
        (found.gpu_instance_id, found.compute_instance_id): found
        for found in (watch("mig_devices", device.mig_devices) if instances else ())
    }
    by_id = {placed.profile.id: placed.profile for placed in profiles}
    partitions = [
        partition for instance in instances for partition in _inside(device, watch, instance, by_id, seen)
    ]
    return GpuMig(
        enabled=True,
        pending=mode.pending,
        without_reset=without_reset,
        profiles=profiles,
        instances=instances,
        partitions=tuple(partitions),
    )


def changes_without_reset(device: NvmlDevice, watch: Watch) -> bool:
    """Whether MIG mode changes without a reset; not where neither the driver nor the architecture tells."""
    try:
        return watch("mig_without_reset", device.mig_without_reset)
    except NotSupported:
        pass  # an old driver; the architecture tells as well
    try:
        return watch("architecture", device.architecture) not in (None, _NEEDS_RESET)
    except NotSupported:
        return False


def _inside(
    device: NvmlDevice,
    watch: Watch,
    instance: GpuInstance,
    profiles: Mapping[int, GpuInstanceProfile],
    seen: Mapping[tuple[int, int], MigDevice],
) -> Iterator[Partition]:
    """The partitions in one GPU instance; none where NVML knows no profile for it."""
    profile = profiles.get(instance.profile_id)
    try:
        inside = watch("compute_instances", lambda: device.compute_instances(instance.id))
    except InstanceNotFound:
        return
    for compute in inside:
        found = seen.get((instance.id, compute.id))
        if profile is not None and found is not None:
            yield Partition(
                found.uuid,
                partition_name(profile, found.compute_instance_slices),
                instance,
                compute,
                found.memory_bytes,
                found.multiprocessors,
                found.engines,
            )
