"""The MIG state of a fake GPU, and the hardware's rules for changing it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields, replace
from operator import attrgetter

from driver.nvml.api import Code
from driver.nvml.mig import Engines, GpuInstanceProfile, MigDevice, MigProcess, Placement
from fakegpu.machine.mig_profiles import MigCatalogue, compute_placements

_UUID_NAMESPACE = uuid.UUID("2b7a2c55-6f0e-5b57-8f4c-2a6a0b9f1d34")
_MOST_COMPUTE_INSTANCES = 8

# The engines as a tuple. dataclasses.astuple would copy them deeply, which is slow, and this runs for every
# set of partitions that is tried.
_engines = attrgetter(*(field.name for field in fields(Engines)))


@dataclass(frozen=True, slots=True)
class ComputeInstanceState:
    """One compute instance. It cannot be destroyed while processes use it."""

    id: int
    profile_id: int
    placement: Placement
    process_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuInstanceState:
    """One GPU instance and its compute instances, in the order of ids."""

    id: int
    profile_id: int
    placement: Placement
    compute_instances: tuple[ComputeInstanceState, ...] = ()

    def compute_instance(self, compute_instance_id: int) -> ComputeInstanceState | None:
        """The compute instance with an id; None if there is none."""
        return next((ci for ci in self.compute_instances if ci.id == compute_instance_id), None)


@dataclass(frozen=True, slots=True)
class MigState:
    """MIG mode of one GPU, now and after its next reset; its GPU instances in the order of ids."""

    enabled: bool = False
    pending: bool = False
    instances: tuple[GpuInstanceState, ...] = ()

    def instance(self, gpu_instance_id: int) -> GpuInstanceState | None:
        """The GPU instance with an id; None if there is none."""
        return next((gi for gi in self.instances if gi.id == gpu_instance_id), None)

    def processes(self) -> tuple[MigProcess, ...]:
        """Which process uses which instance, sorted by process and instance."""
        found = [
            MigProcess(pid, gi.id, ci.id)
            for gi in self.instances
            for ci in gi.compute_instances
            for pid in ci.process_ids
        ]
        return tuple(sorted(found, key=astuple))

    def with_instance(self, gpu_instance_id: int, new: GpuInstanceState | None) -> MigState:
        """The state with one GPU instance added or replaced, or removed with None."""
        kept = [gi for gi in self.instances if gi.id != gpu_instance_id]
        added = [] if new is None else [new]
        return replace(self, instances=tuple(sorted(kept + added, key=lambda gi: gi.id)))

    def after_reset(self, *, mode_lasts: bool = True) -> MigState:
        """The state after a reset, a reboot or a new load of the driver: no instance outlives them."""
        enabled = self.pending and mode_lasts
        return MigState(enabled=enabled, pending=enabled)


NO_MIG = MigState()
"""A GPU as it comes from the factory: MIG mode off."""


def gpu_instance_refusal(
    catalogue: MigCatalogue, mig: MigState, profile_id: int, placement: Placement
) -> Code | None:
    """Why the hardware refuses a GPU instance at a placement; None if it does not."""
    # Memory slices and engines decide. Compute slices and the most instances of a profile follow from them.
    if placement not in catalogue.placements.get(profile_id, ()):
        return Code.INVALID_ARGUMENT
    if any(placement.overlaps(instance.placement) for instance in mig.instances):
        return Code.INSUFFICIENT_RESOURCES
    profile = catalogue.profile(profile_id)
    there = [catalogue.profile(instance.profile_id) for instance in mig.instances]
    if not _fits([*there, profile], catalogue.whole):
        return Code.INSUFFICIENT_RESOURCES
    return None


def _fits(profiles: list[GpuInstanceProfile], whole: GpuInstanceProfile) -> bool:
    """Whether the engines of all profiles together are no more than the GPU has."""
    wanted: Iterable[tuple[int, ...]] = zip(*(_engines(profile.engines) for profile in profiles), strict=True)
    return all(sum(kind) <= most for kind, most in zip(wanted, _engines(whole.engines), strict=True))


def with_gpu_instance(
    catalogue: MigCatalogue, mig: MigState, profile_id: int, placement: Placement
) -> tuple[MigState, GpuInstanceState]:
    """The state with a new instance, and the instance; ``gpu_instance_refusal`` has to be None for it."""
    new = GpuInstanceState(catalogue.instance_id(placement), profile_id, placement)
    return mig.with_instance(new.id, new), new


def new_compute_instance(
    catalogue: MigCatalogue, inside: GpuInstanceState, profile_id: int
) -> ComputeInstanceState | Code:
    """The compute instance that NVML makes at the first free placement, or the code with which it refuses."""
    offered = {profile.id: profile for profile in catalogue.compute_profiles(inside.profile_id)}
    if profile_id not in offered:
        return Code.INVALID_ARGUMENT
    inside_slices = catalogue.profile(inside.profile_id).slices
    taken = [instance.placement for instance in inside.compute_instances]
    free_ids = set(range(_MOST_COMPUTE_INSTANCES)) - {instance.id for instance in inside.compute_instances}
    for placement in compute_placements(inside_slices, offered[profile_id].slices):
        if not any(placement.overlaps(other) for other in taken):
            return ComputeInstanceState(min(free_ids), profile_id, placement)
    return Code.INSUFFICIENT_RESOURCES


def mig_devices(catalogue: MigCatalogue, mig: MigState, parent_uuid: str) -> tuple[MigDevice, ...]:
    """The compute instances as CUDA sees them."""
    return tuple(
        _mig_device(catalogue, gi, ci, parent_uuid) for gi in mig.instances for ci in gi.compute_instances
    )


def _mig_device(
    catalogue: MigCatalogue, gi: GpuInstanceState, ci: ComputeInstanceState, parent_uuid: str
) -> MigDevice:
    owner = catalogue.profile(gi.profile_id)
    offered = {profile.id: profile for profile in catalogue.compute_profiles(gi.profile_id)}
    return MigDevice(
        uuid=mig_uuid(parent_uuid, gi.id, ci.id),
        parent_uuid=parent_uuid,
        gpu_instance_id=gi.id,
        compute_instance_id=ci.id,
        memory_bytes=owner.memory_bytes,
        multiprocessors=offered[ci.profile_id].multiprocessors,
        compute_instance_slices=ci.placement.size,
        engines=owner.engines,
    )


def mig_uuid(parent_uuid: str, gpu_instance_id: int, compute_instance_id: int) -> str:
    """The UUID of a MIG device: the same each time for the same GPU and ids."""
    place = f"{parent_uuid}/{gpu_instance_id}/{compute_instance_id}"
    return f"MIG-{uuid.uuid5(_UUID_NAMESPACE, place)}"
