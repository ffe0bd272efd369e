"""MIG partitions, of two kinds: those that an admin made, and those that are made for a claim.

Decides which of them a GPU offers, and what becomes of the whole GPU beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from driver.devices.device import MEMORY_SLICE, Device
from driver.devices.gpu_policy import GpuPolicy
from driver.devices.region import Region
from driver.errors import ConfigError
from driver.hardware.call_effects import INSTANCE_CALLS, PROFILE_CALLS
from driver.hardware.gpu import Gpu, GpuMig, Inventory, PlacedProfile
from driver.kinds.forms import Forms, GpuForms
from driver.kinds.gpu_attributes import attribute_text, known
from driver.kinds.kind import OfferedKind, Policies, PolicyField
from driver.kinds.partition.devices import compute_capacity, counter_set, made_partitions, static_partitions
from driver.kinds.partition.field import MigField
from driver.kinds.partition.layouts import (
    find_profile,
    largest_profile,
    layout_profiles,
    packing_order,
    place,
)
from driver.kinds.partition.names import PartitionName, parse_partition_name, profile_slug
from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress

_NEEDS_RESET_TO_START = "MIG mode is off and changes only with a GPU reset"
_NEEDS_RESET_TO_END = "MIG mode is on and changes only with a GPU reset"
NO_MIG = "it has no MIG, so it cannot be partitioned"
MIG_UNKNOWN = "NVML does not report its MIG profiles"
_PARTITIONS_UNKNOWN = "NVML does not report its partitions"
NO_SUCH_PROFILE = "it has none of the MIG profiles of the configuration"

_OFFERED_INSTEAD = "its static MIG partitions are offered instead"
_NO_PARTITION = "it has no partition, and the node configuration offers nothing else of it"

# It wastes compute slices, so it is only offered by name.
_DOUBLE_MEMORY_INDEX = 0x9
"""The 1g with the memory of a 2g (NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2)."""


def _with_static(gpu: Gpu, policy: GpuPolicy, forms: GpuForms, inventory: Inventory) -> GpuForms:
    """The forms with the partitions that an admin made, if the policy publishes those."""
    if policy.form == "shared" or policy.mig.mode != "static":
        return forms
    return _without_whole(policy, _static(gpu, inventory, forms))


def _with_made(gpu: Gpu, policy: GpuPolicy, forms: GpuForms, inventory: Inventory) -> GpuForms:
    """The forms with the partitions that are made on request, if the policy offers any."""
    if policy.form == "shared" or policy.mig.mode not in ("dynamic", "layout"):
        return forms
    if policy.mig.mode == "layout":
        return _layout(gpu, policy.mig.layout, inventory, forms)
    return _without_whole(policy, _dynamic(gpu, policy.mig.profiles, inventory, forms))


def _without_whole(policy: GpuPolicy, forms: GpuForms) -> GpuForms:
    """The forms without the whole GPU if the node configuration wants only partitions."""
    if policy.form != "partitions":
        return forms
    if forms.partitions or not forms.whole:
        kept = tuple((part, reason) for part, reason in forms.withheld if part != "whole")
        return replace(forms, whole=False, withheld=kept)
    return forms.nothing(dict(forms.withheld).get("partitions") or _NO_PARTITION)


def _static(gpu: Gpu, inventory: Inventory, forms: GpuForms) -> GpuForms:
    # A guest with a vGPU on a GPU instance sees that as a plain GPU, and may not change MIG mode.
    if not gpu.mig_enabled or gpu.virtualization == "vgpu":
        return forms
    if not gpu.unanswered.isdisjoint(PROFILE_CALLS | INSTANCE_CALLS):
        return forms.unknown(_PARTITIONS_UNKNOWN)
    if gpu.mig is None:
        return forms
    if not gpu.mig.instances:
        return forms.nothing("MIG mode is on, but no partition exists: make one, or turn MIG mode off")
    partitions = static_partitions(gpu, gpu.mig, inventory)
    if not partitions:
        return forms.nothing("none of its GPU instances has a compute instance, so nothing can use it")
    return replace(forms, whole=False, partitions=partitions, withheld=(("whole", _OFFERED_INSTEAD),))


def _dynamic(gpu: Gpu, names: Sequence[str], inventory: Inventory, forms: GpuForms) -> GpuForms:
    mig = gpu.mig
    if _is_doubtful(gpu):
        return forms.unknown(MIG_UNKNOWN)
    if _knows_no_mig(gpu) or mig is None:
        return forms
    # From Hopper on a change of MIG mode needs no reset of the GPU; on an A100 or A30 it does.
    switchable = mig.without_reset
    profiles = _chosen(names, mig)
    if not profiles:
        if mig.enabled and not switchable:
            return forms.nothing(NO_SUCH_PROFILE)
        return _unpartitioned(forms, NO_SUCH_PROFILE)
    if not (switchable or mig.enabled):
        return _unpartitioned(forms, _NEEDS_RESET_TO_START)
    offered = packing_order([(one.profile, placement) for one in profiles for placement in one.placements])
    counters = counter_set(gpu, mig, offered)
    return replace(
        forms,
        physical=_measured(forms.physical, mig),
        whole=switchable,
        partitions=made_partitions(gpu, inventory, offered, counters),
        counters=counters,
        withheld=() if switchable else (("whole", _NEEDS_RESET_TO_END),),
    )


def _unpartitioned(forms: GpuForms, reason: str) -> GpuForms:
    """Only the whole GPU, although partitions are wanted too; an attribute gives the reason."""
    attributes = known({**forms.physical.attributes, "migWithheld": attribute_text(reason)})
    physical = replace(forms.physical, attributes=attributes)
    return replace(forms, physical=physical, whole=True, withheld=(("partitions", reason),))


def _measured(physical: Device, mig: GpuMig) -> Device:
    """The whole GPU with the capacities that its partitions have."""
    largest = largest_profile(mig)
    compute = {} if largest is None else compute_capacity(largest.multiprocessors, largest.engines)
    return replace(physical, capacity={**physical.capacity, **compute})


def _layout(gpu: Gpu, layout: str | Sequence[str], inventory: Inventory, forms: GpuForms) -> GpuForms:
    mig = gpu.mig
    if _is_doubtful(gpu):
        return forms.unknown(MIG_UNKNOWN)
    if _knows_no_mig(gpu) or mig is None:
        return forms.nothing(NO_MIG)
    if not (mig.enabled or mig.without_reset):
        return forms.nothing(_NEEDS_RESET_TO_START)
    try:
        wanted = layout_profiles(layout, mig)
    except ConfigError as error:
        return forms.nothing(f"{error.what}: {error.way_out}")
    if not wanted:
        return forms.nothing(f"the layout {layout} has no partitions")
    placed = place(wanted, mig)
    if placed is None:
        return forms.nothing(f"the layout {_shown(layout)} does not fit on it")
    partitions = made_partitions(gpu, inventory, packing_order(placed))
    return replace(forms, whole=False, partitions=partitions, withheld=())


def _knows_no_mig(gpu: Gpu) -> bool:
    """Whether it is certain that we can make no partitions: no MIG, or a vGPU guest, which may not use it."""
    return gpu.mig_capable is False or gpu.virtualization == "vgpu"


def _is_doubtful(gpu: Gpu) -> bool:
    """Whether the GPU may be partitionable, and something that decides it could not be read."""
    if gpu.mig_capable is False:
        return False
    if "virtualization" in gpu.unanswered:
        return True
    return not _knows_no_mig(gpu) and (gpu.mig is None or "mig_without_reset" in gpu.unanswered)


def _chosen(names: Sequence[str], mig: GpuMig) -> tuple[PlacedProfile, ...]:
    """The profiles of dynamic mode that the GPU has: the named ones, else those useful on most GPUs."""
    if names:
        wanted = {profile.id for name in names if (profile := find_profile(name, mig)) is not None}
        return tuple(placed for placed in mig.profiles if placed.profile.id in wanted)
    whole = largest_profile(mig)
    return tuple(
        placed
        for placed in mig.profiles
        if not placed.profile.attributes
        and placed.profile.index != _DOUBLE_MEMORY_INDEX
        and placed.profile != whole
    )


def _shown(layout: str | Sequence[str]) -> str:
    return layout if isinstance(layout, str) else ", ".join(layout)


class _PartitionKind(OfferedKind):
    """What both kinds have in common."""

    form = "partitions"
    attribute_type = "mig"
    opaque = "MigDeviceConfig"
    described = "a partition"
    has_modes = False
    leaves_driver = False
    by_admin = False

    def parse(self, unshared: str) -> tuple[Region, ...] | None:
        """The first memory slice of the partition; its name does not say how many there are."""
        name = self._name(unshared)
        return None if name is None else (name.region,)

    def stored(self, unshared: str, consumes: Mapping[str, int]) -> tuple[Region, ...]:
        """Its memory slices by the counters that it consumes; without counters, the first one."""
        name = self._name(unshared)
        if name is None:
            return ()
        size = sum(counter.startswith(MEMORY_SLICE) for counter in consumes)
        return (Region(name.pci, Placement(name.start, max(1, size))),)

    def place(self, unshared: str, gpus: Mapping[PciAddress, Gpu]) -> tuple[Region, ...]:
        """Its memory slices by the profile of its GPU; all of the GPU if the profile is not known."""
        name = self._name(unshared)
        if name is None:
            return ()
        gpu = gpus.get(name.pci)
        places = (
            placement
            for placed in (gpu.mig.profiles if gpu and gpu.mig else ())
            if profile_slug(placed.profile.name) == name.gpu_instance_profile
            for placement in placed.placements
            if placement.start == name.start
        )
        return (Region(name.pci, next(places, None)),)

    def title(self, unshared: str, attributes: Mapping[str, Any]) -> str:
        """The profile from the attributes, else from the name."""
        name = self._name(unshared)
        return str(attributes.get("profile") or (name.profile if name else unshared))

    def position(self, unshared: str) -> str:
        """The first memory slice."""
        name = self._name(unshared)
        return "" if name is None else f"at {name.start}"

    def _name(self, unshared: str) -> PartitionName | None:
        name = parse_partition_name(unshared)
        return name if name is not None and name.static == self.by_admin else None


class StaticKind(_PartitionKind):
    """Partitions that exist, and that this driver neither makes nor destroys."""

    word = "static"
    by_admin = True
    policy_field: PolicyField | None = None

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        """The partitions of GPUs that an admin has partitioned, instead of the whole GPUs."""
        return so_far.changed(
            inventory, policies, lambda gpu, policy, forms: _with_static(gpu, policy, forms, inventory)
        )


class MadeKind(_PartitionKind):
    """Partitions that are published before they exist: those of a layout, or every profile everywhere."""

    word = "partition"
    policy_field: PolicyField | None = MigField()

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        """The partitions of a layout instead of the GPU, or dynamic ones beside it."""
        return so_far.changed(
            inventory, policies, lambda gpu, policy, forms: _with_made(gpu, policy, forms, inventory)
        )


STATIC = StaticKind()
MADE = MadeKind()
