"""MIG partitions, of two kinds: those that an admin made, and those that are made for a claim.

Decides which of them a GPU offers, what becomes of the whole GPU beside them, and why.
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
from driver.kinds.kind import Policies, PolicyField
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
NOT_TOLD = "NVML does not tell what MIG can make of it"
_PARTITIONS_NOT_TOLD = "NVML does not tell which partitions exist on it"
NO_SUCH_PROFILE = "it has none of the MIG profiles of the configuration"

_OFFERED_INSTEAD = "its static MIG partitions are offered instead"
_NO_PARTITION = "it has no partition, and the node configuration offers nothing else"

_DOUBLE_MEMORY_INDEX = 0x9
"""The 1g with the memory of a 2g (NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2): it wastes compute slices."""


def _with_static(gpu: Gpu, policy: GpuPolicy, forms: GpuForms, inventory: Inventory) -> GpuForms:
    """The forms with the partitions that an admin made, where the policy publishes those.

    ``forms`` is the GPU as a whole, where it can be that.
    """
    if policy.form == "shared" or policy.mig.mode != "static":
        return forms
    return _asked(policy, _static(gpu, inventory, forms))


def _with_made(gpu: Gpu, policy: GpuPolicy, forms: GpuForms, inventory: Inventory) -> GpuForms:
    """The forms with the partitions that are made on request, where the policy offers any."""
    if policy.form == "shared" or policy.mig.mode not in ("dynamic", "layout"):
        return forms
    if policy.mig.mode == "layout":
        return _layout(gpu, policy.mig.layout, inventory, forms)
    return _asked(policy, _dynamic(gpu, policy.mig.profiles, inventory, forms))


def _asked(policy: GpuPolicy, forms: GpuForms) -> GpuForms:
    """What is left where the node configuration asks for partitions alone."""
    if policy.form != "partitions":
        return forms
    if forms.partitions or not forms.whole:
        kept = tuple((part, reason) for part, reason in forms.withheld if part != "whole")
        return replace(forms, whole=False, withheld=kept)
    return forms.nothing(dict(forms.withheld).get("partitions") or _NO_PARTITION)


def _static(gpu: Gpu, inventory: Inventory, forms: GpuForms) -> GpuForms:
    if not gpu.mig_enabled or gpu.virtualization == "vgpu":
        return forms
    if not gpu.unanswered.isdisjoint(PROFILE_CALLS | INSTANCE_CALLS):
        return forms.unknown(_PARTITIONS_NOT_TOLD)
    if gpu.mig is None:
        return forms
    if not gpu.mig.instances:
        return forms.nothing("MIG mode is on and no partition exists: make one, or turn MIG mode off")
    partitions = static_partitions(gpu, gpu.mig, inventory)
    if not partitions:
        return forms.nothing("no GPU instance of it has a compute instance, so nothing can use it")
    return replace(forms, whole=False, partitions=partitions, withheld=(("whole", _OFFERED_INSTEAD),))


def _dynamic(gpu: Gpu, names: Sequence[str], inventory: Inventory, forms: GpuForms) -> GpuForms:
    mig = gpu.mig
    if _is_doubtful(gpu):
        return forms.unknown(NOT_TOLD)
    if _knows_no_mig(gpu) or mig is None:
        return forms
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
    """The whole GPU alone, although partitions are wanted beside it: an attribute says why there are none."""
    told = known({**forms.physical.attributes, "migWithheld": attribute_text(reason)})
    physical = replace(forms.physical, attributes=told)
    return replace(forms, physical=physical, whole=True, withheld=(("partitions", reason),))


def _measured(physical: Device, mig: GpuMig) -> Device:
    """The whole GPU with the capacities by which its partitions are measured."""
    largest = largest_profile(mig)
    compute = {} if largest is None else compute_capacity(largest.multiprocessors, largest.engines)
    return replace(physical, capacity={**physical.capacity, **compute})


def _layout(gpu: Gpu, layout: str | Sequence[str], inventory: Inventory, forms: GpuForms) -> GpuForms:
    mig = gpu.mig
    if _is_doubtful(gpu):
        return forms.unknown(NOT_TOLD)
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
    """Whether the GPU surely has no partitions for us: no MIG, or a vGPU guest, which may not change it."""
    return gpu.mig_capable is False or gpu.virtualization == "vgpu"


def _is_doubtful(gpu: Gpu) -> bool:
    """Whether the GPU could be partitioned, and NVML did not tell something that decides how."""
    if gpu.mig_capable is False:
        return False
    if "virtualization" in gpu.unanswered:
        return True
    return not _knows_no_mig(gpu) and (gpu.mig is None or "mig_without_reset" in gpu.unanswered)


def _chosen(names: Sequence[str], mig: GpuMig) -> tuple[PlacedProfile, ...]:
    """The profiles of dynamic mode that the GPU has: those named, or else those that make sense on most."""
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


class _PartitionKind:
    """What both kinds have in common."""

    form = "partitions"
    attribute_type = "mig"
    opaque = "MigDeviceConfig"
    described = "a partition"
    has_modes = False
    leaves_driver = False
    by_admin = False

    def parse(self, unshared: str) -> tuple[Region, ...] | None:
        """The first memory slice of the partition: how many it takes, its name does not tell."""
        name = self._name(unshared)
        return None if name is None else (name.region,)

    def stored(self, unshared: str, consumes: Mapping[str, int]) -> tuple[Region, ...]:
        """Its memory slices by the counters that it consumes; without counters, the first of them."""
        name = self._name(unshared)
        if name is None:
            return ()
        size = sum(counter.startswith(MEMORY_SLICE) for counter in consumes)
        return (Region(name.pci, Placement(name.start, max(1, size))),)

    def place(self, unshared: str, gpus: Mapping[PciAddress, Gpu]) -> tuple[Region, ...]:
        """Its memory slices, as its GPU knows the profile; all of the GPU where it does not."""
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
        """The profile: as it is published, else as the name has it."""
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
    """Partitions that exist and that the driver neither makes nor destroys."""

    word = "static"
    by_admin = True
    policy_field: PolicyField | None = None

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        """The partitions of GPUs that an admin has cut, instead of the whole GPUs."""
        return so_far.changed(
            inventory, policies, lambda gpu, policy, forms: _with_static(gpu, policy, forms, inventory)
        )


class MadeKind(_PartitionKind):
    """Partitions that are published before they exist: of a layout, or in all of their places."""

    word = "partition"
    policy_field: PolicyField | None = MigField()

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        """The partitions of a layout instead of the GPU, or dynamic ones beside it."""
        return so_far.changed(
            inventory, policies, lambda gpu, policy, forms: _with_made(gpu, policy, forms, inventory)
        )


STATIC = StaticKind()
MADE = MadeKind()
