"""Reads all about MIG from one GPU: which profiles it has, and which instances exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from driver.errors import NvmlError
from driver.hardware.call_effects import INSTANCE_CALLS
from driver.hardware.gpu import GpuMig, Partition, PlacedProfile
from driver.nvml.api import (
    Code,
    DriverNotLoaded,
    GpuLost,
    MigMode,
    NotFound,
    NotSupported,
    NvmlCallFailed,
    NvmlDevice,
    SessionLost,
)
from driver.nvml.deadline import Watch
from driver.nvml.mig import ComputeInstance, GpuInstance, GpuInstanceProfile, MigDevice, partition_name

T = TypeVar("T")

_NEEDS_RESET = "Ampere"
"""The only architecture on which MIG mode changes by a reset alone (MIG user guide)."""

KnownProfiles = dict[tuple[str, bool], tuple[PlacedProfile, ...]]
"""The MIG profiles of GPUs, as read in one NVML session, by UUID and MIG mode."""


class _PartFailed(Exception):
    """One part of the walk failed at the call ``name``."""

    def __init__(self, name: str, error: NvmlError) -> None:
        super().__init__(str(error))
        self.name = name
        self.error = error


class MigWalk:
    """One check of MIG on one GPU whose mode was just read.

    ``former`` is the last state of the same board, and ``unanswered`` names the calls whose part of it is not
    known. If a call fails now, its part of the former state stays. ``note_failure`` is called with the call,
    the error, and whether there is such a former state. ``uuid`` is the board's. Its profiles are taken from
    ``known_profiles``, or read and added to it. Raises GpuLost, SessionLost and DriverNotLoaded.
    """

    def __init__(
        self,
        device: NvmlDevice,
        watch: Watch,
        former: GpuMig | None,
        unanswered: frozenset[str],
        note_failure: Callable[[str, NvmlError, bool], None],
        uuid: str,
        known_profiles: KnownProfiles,
    ) -> None:
        self._device = device
        self._watch = watch
        self._former = former
        self._unanswered = unanswered
        self._note_failure = note_failure
        self._uuid = uuid
        self._known_profiles = known_profiles

    def run(self, mode: MigMode, architecture: str | None) -> GpuMig | None:
        """The state of MIG; None if the profiles were never read."""
        former = self._former
        # The profiles first: an instance says only the id of its profile.
        profiles = self._part(lambda: self._profiles(mode), None if former is None else former.profiles)
        without_reset = self._without_reset(architecture)
        if profiles is None:
            return None
        instances: tuple[GpuInstance, ...] = ()
        partitions: tuple[Partition, ...] = ()
        # Calls about instances are NOT_SUPPORTED while the mode is off.
        if mode.enabled:
            by_id = {placed.profile.id: placed.profile for placed in profiles}
            known = former is not None and former.enabled and self._unanswered.isdisjoint(INSTANCE_CALLS)
            before = (former.instances, former.partitions) if former and known else None
            instances, partitions = self._part(lambda: self._instances(by_id), before) or ((), ())
        return GpuMig(mode.enabled, mode.pending, without_reset, profiles, instances, partitions)

    def _part(self, read: Callable[[], T], before: T | None) -> T | None:
        try:
            return read()
        except _PartFailed as failed:
            self._note_failure(failed.name, failed.error, before is not None)
            return before

    def _ask(self, name: str, call: Callable[[], T]) -> T:
        try:
            return self._watch(name, call)
        except (GpuLost, SessionLost, DriverNotLoaded):
            raise
        except NvmlError as error:
            raise _PartFailed(name, error) from error

    def _profiles(self, mode: MigMode) -> tuple[PlacedProfile, ...]:
        key = (self._uuid, mode.enabled)
        # Reading them takes some forty calls, and only another board, driver or mode changes the answer.
        if key not in self._known_profiles:
            self._known_profiles[key] = self._read_profiles()
        return self._known_profiles[key]

    def _read_profiles(self) -> tuple[PlacedProfile, ...]:
        return tuple(
            PlacedProfile(
                profile,
                self._ask(
                    "gpu_instance_placements",
                    partial(self._device.gpu_instance_placements, profile.id),
                ),
            )
            for profile in self._ask("gpu_instance_profiles", self._device.gpu_instance_profiles)
        )

    def _without_reset(self, architecture: str | None) -> bool:
        """As ``changes_without_reset``, with the architecture that was read already."""
        by_architecture = architecture not in (None, _NEEDS_RESET)
        try:
            return self._ask("mig_without_reset", self._device.mig_without_reset)
        except _PartFailed as failed:
            if _field_unknown(failed.error):
                return by_architecture
            former = self._former if "mig_without_reset" not in self._unanswered else None
            self._note_failure(failed.name, failed.error, former is not None or architecture is not None)
            return by_architecture if former is None else former.without_reset

    def _instances(
        self, profiles: Mapping[int, GpuInstanceProfile]
    ) -> tuple[tuple[GpuInstance, ...], tuple[Partition, ...]]:
        instances = self._listed("gpu_instances", self._device.gpu_instances)
        if not instances:
            return (), ()
        # The two lists are read one after the other, so an instance may be in one of them alone.
        seen = {
            (found.gpu_instance_id, found.compute_instance_id): found
            for found in self._listed("mig_devices", self._device.mig_devices)
        }
        left: list[GpuInstance] = []
        partitions: list[Partition] = []
        for instance in instances:
            inside = self._inside(instance)
            if inside is not None:
                left.append(instance)
                partitions.extend(_partitions(instance, inside, profiles, seen))
        return tuple(left), tuple(partitions)

    def _listed(self, name: str, call: Callable[[], T]) -> T:
        """The answer of a call that lists instances."""
        try:
            return self._ask(name, call)
        except _PartFailed as failed:
            # The call lists the instances and then reads each. If another process destroys one in between, it
            # ends with NOT_FOUND, and the next call gives a list without it.
            if not isinstance(failed.error, NotFound):
                raise
        return self._ask(name, call)

    def _inside(self, instance: GpuInstance) -> tuple[ComputeInstance, ...] | None:
        """The compute instances of a GPU instance; None when it was destroyed since it was listed."""
        try:
            return self._ask("compute_instances", lambda: self._device.compute_instances(instance.id))
        except _PartFailed as failed:
            # Only another list tells a destroyed instance from a real failure.
            if isinstance(failed.error, NotFound) and instance not in self._listed(
                "gpu_instances", self._device.gpu_instances
            ):
                return None
            raise


def changes_without_reset(device: NvmlDevice, watch: Watch) -> bool:
    """Whether MIG mode changes without a reset; False if neither driver nor architecture says so."""
    try:
        return watch("mig_without_reset", device.mig_without_reset)
    except NvmlCallFailed as error:
        if not _field_unknown(error):
            raise
    try:
        return watch("architecture", device.architecture) not in (None, _NEEDS_RESET)
    except NotSupported:
        return False


def _field_unknown(error: NvmlError) -> bool:
    """Whether the driver is too old for the field."""
    # nvmlDeviceGetFieldValues may refuse an unknown field as NOT_SUPPORTED or as INVALID_ARGUMENT.
    return isinstance(error, NotSupported) or (
        isinstance(error, NvmlCallFailed) and error.code == Code.INVALID_ARGUMENT
    )


def _partitions(
    instance: GpuInstance,
    inside: Iterable[ComputeInstance],
    profiles: Mapping[int, GpuInstanceProfile],
    seen: Mapping[tuple[int, int], MigDevice],
) -> Iterator[Partition]:
    """The partitions in one GPU instance; none if NVML has no profile for it."""
    profile = profiles.get(instance.profile_id)
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
