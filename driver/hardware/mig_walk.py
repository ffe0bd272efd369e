"""Asks one GPU everything about MIG: what it offers, and what exists on it now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Protocol, TypeVar

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
"""The one architecture with MIG whose mode changes with a reset only (MIG user guide)."""

KnownProfiles = dict[tuple[str, bool], tuple[PlacedProfile, ...]]
"""The MIG profiles that GPUs offer, as read in one NVML session, by UUID and MIG mode.

Only another board, driver or mode offers something else, so it is asked for once: it takes some forty calls.
"""


class Notice(Protocol):
    """Takes down that a call failed; ``known`` is whether an earlier answer counts on."""

    def __call__(self, name: str, error: NvmlError, *, known: bool) -> None:
        """Take down the failure of the call ``name``."""
        ...


class _PartFailed(Exception):
    """One part of the walk failed at the call ``name``."""

    def __init__(self, name: str, error: NvmlError) -> None:
        super().__init__(str(error))
        self.name = name
        self.error = error


class MigWalk:
    """One check of MIG on one GPU whose mode was just read.

    ``former`` is what was known of the same board, without what the calls ``unanswered`` would have given. It
    stays, part by part, where a call fails now; ``notice`` is called for each such call. The board is
    ``uuid``; what it offers is taken from ``offered``, and added there once it was read. Raises GpuLost,
    SessionLost and DriverNotLoaded.
    """

    def __init__(
        self,
        device: NvmlDevice,
        watch: Watch,
        former: GpuMig | None,
        unanswered: frozenset[str],
        notice: Notice,
        uuid: str,
        offered: KnownProfiles,
    ) -> None:
        self._device = device
        self._watch = watch
        self._former = former
        self._untold = unanswered
        self._notice = notice
        self._uuid = uuid
        self._offered = offered

    def run(self, mode: MigMode, architecture: str | None) -> GpuMig | None:
        """All of it; None where NVML never told what MIG can make of the GPU."""
        former = self._former
        profiles = self._part(lambda: self._profiles(mode), None if former is None else former.profiles)
        without_reset = self._without_reset(architecture)
        if profiles is None:
            return None
        instances: tuple[GpuInstance, ...] = ()
        partitions: tuple[Partition, ...] = ()
        if mode.enabled:
            by_id = {placed.profile.id: placed.profile for placed in profiles}
            known = former is not None and former.enabled and self._untold.isdisjoint(INSTANCE_CALLS)
            before = (former.instances, former.partitions) if former and known else None
            instances, partitions = self._part(lambda: self._instances(by_id), before) or ((), ())
        return GpuMig(mode.enabled, mode.pending, without_reset, profiles, instances, partitions)

    def _part(self, read: Callable[[], T], before: T | None) -> T | None:
        try:
            return read()
        except _PartFailed as failed:
            self._notice(failed.name, failed.error, known=before is not None)
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
        if key not in self._offered:
            self._offered[key] = self._read_profiles()
        return self._offered[key]

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
        """As ``changes_without_reset`` has it, with the architecture that was read already."""
        by_architecture = architecture not in (None, _NEEDS_RESET)
        try:
            return self._ask("mig_without_reset", self._device.mig_without_reset)
        except _PartFailed as failed:
            if _field_unknown(failed.error):
                return by_architecture
            told = self._former if "mig_without_reset" not in self._untold else None
            self._notice(failed.name, failed.error, known=told is not None or architecture is not None)
            return by_architecture if told is None else told.without_reset

    def _instances(
        self, profiles: Mapping[int, GpuInstanceProfile]
    ) -> tuple[tuple[GpuInstance, ...], tuple[Partition, ...]]:
        instances = self._listed("gpu_instances", self._device.gpu_instances)
        if not instances:
            return (), ()
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
        """A list, which is read once more where what it names goes away meanwhile."""
        try:
            return self._ask(name, call)
        except _PartFailed as failed:
            if not isinstance(failed.error, NotFound):
                raise
        return self._ask(name, call)

    def _inside(self, instance: GpuInstance) -> tuple[ComputeInstance, ...] | None:
        """The compute instances of a GPU instance; None when it was destroyed since it was listed."""
        try:
            return self._ask("compute_instances", lambda: self._device.compute_instances(instance.id))
        except _PartFailed as failed:
            if isinstance(failed.error, NotFound) and instance not in self._listed(
                "gpu_instances", self._device.gpu_instances
            ):
                return None
            raise


def changes_without_reset(device: NvmlDevice, watch: Watch) -> bool:
    """Whether MIG mode changes without a reset; not where neither the driver nor the architecture tells."""
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
    """Whether the driver is too old for the field, which it says in one of two ways."""
    return isinstance(error, NotSupported) or (
        isinstance(error, NvmlCallFailed) and error.code == Code.INVALID_ARGUMENT
    )


def _partitions(
    instance: GpuInstance,
    inside: Iterable[ComputeInstance],
    profiles: Mapping[int, GpuInstanceProfile],
    seen: Mapping[tuple[int, int], MigDevice],
) -> Iterator[Partition]:
    """The partitions in one GPU instance; none where NVML knows no profile for it."""
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
