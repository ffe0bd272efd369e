"""MIG partitions, of two kinds: those that an admin made, and those that are made for a claim.

Decides which of them a GPU offers, and what becomes of the whole GPU beside them. Counters keep allocations
from over-committing a GPU: all its forms consume from one counter set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from driver.devices.device import MEMORY_SLICE, AttributeValue, CounterSet, Device
from driver.devices.gpu_policy import GpuPolicy
from driver.devices.limits import MAX_ATTRIBUTES_AND_CAPACITIES
from driver.devices.names import gpu_device_name
from driver.devices.region import Region
from driver.errors import ConfigError
from driver.hardware.call_effects import INSTANCE_CALLS, PROFILE_CALLS
from driver.hardware.gpu import Gpu, GpuMig, Inventory, Partition, PlacedProfile
from driver.kinds.forms import Forms, GpuForms
from driver.kinds.gpu_attributes import attribute_text, known, physical_attributes
from driver.kinds.kind import OfferedKind, Policies, PolicyField
from driver.kinds.partition.field import MigField
from driver.kinds.partition.layouts import (
    Placed,
    find_profile,
    largest_profile,
    layout_profiles,
    memory_slices,
    packing_order,
    place,
)
from driver.kinds.partition.names import (
    PartitionName,
    parse_partition_name,
    partition_device_name,
    profile_slug,
    static_device_name,
)
from driver.nvml.mig import Engines, GpuInstanceProfile, Placement
from driver.nvml.pci_address import PciAddress

ENGINE_COUNTERS = ("copy-engines", "decoders", "encoders", "jpeg-engines", "ofa-engines")


def counter_set(gpu: Gpu, mig: GpuMig, offered: Sequence[Placed]) -> CounterSet:
    """The counters that keep the ``offered`` partitions and the whole GPU apart.

    Each memory slice is a counter, and so is each kind of engine that can run short.
    """
    slices = memory_slices(mig)
    counters = {f"{MEMORY_SLICE}{index}": 1 for index in range(slices)}
    whole = largest_profile(mig)
    available = _engines(whole.engines) if whole else {}
    # Engines are counted only if partitions without a common memory slice can together need more of them than
    # the GPU has: each counter costs the scheduler time.
    counters |= {
        name: count for name, count in available.items() if _most_needed(name, offered, slices) > count
    }
    return CounterSet(gpu_device_name(gpu.pci), gpu.pci, counters)


def consumed(counters: CounterSet, profile: GpuInstanceProfile, placement: Placement) -> dict[str, int]:
    """What a partition consumes: its memory slices, and its engines of the kinds that are counted."""
    slices = range(placement.start, placement.start + placement.size)
    engines = {name: count for name, count in _engines(profile.engines).items() if name in counters.counters}
    return {f"{MEMORY_SLICE}{index}": 1 for index in slices} | {
        name: count for name, count in engines.items() if count
    }


def _most_needed(name: str, offered: Sequence[Placed], slices: int) -> int:
    """The most engines of a kind that partitions without a common memory slice can need together."""
    # most[s] is the answer for the memory slices from s on. At each slice either no partition begins, or one
    # does, and then the slices behind its end are left.
    most = [0] * (slices + 1)
    for start in reversed(range(slices)):
        beginning = [
            _engines(profile.engines)[name] + most[start + placement.size]
            for profile, placement in offered
            if placement.start == start
        ]
        most[start] = max([most[start + 1], *beginning])
    return most[0]


def _engines(engines: Engines) -> dict[str, int]:
    values = (engines.copy, engines.decoders, engines.encoders, engines.jpeg, engines.ofa)
    return dict(zip(ENGINE_COUNTERS, values, strict=True))


def made_partitions(
    gpu: Gpu, inventory: Inventory, offered: Iterable[Placed], counters: CounterSet | None = None
) -> tuple[Device, ...]:
    """Partitions that are made when a claim is prepared, in the given order, with counters if given."""
    return tuple(
        Device(
            partition_device_name(gpu.pci, profile.name, placement.start),
            gpu.pci,
            _attributes(gpu, inventory, profile.name),
            {
                "memory": profile.memory_bytes,
                **compute_capacity(profile.multiprocessors, profile.engines),
            },
            span=placement,
            counter_set=counters.name if counters else "",
            consumes=consumed(counters, profile, placement) if counters else {},
        )
        for profile, placement in offered
    )


def static_partitions(gpu: Gpu, mig: GpuMig, inventory: Inventory) -> tuple[Device, ...]:
    """The partitions that exist on the GPU: small ones first, then those without media engines, then by
    place.

    A scheduler takes the first device that fits, so a claim for a plain partition does not get one with media
    engines.
    """

    def order(partition: Partition) -> tuple[int, int, bool, int, int]:
        instance, compute = partition.gpu_instance.placement, partition.compute_instance.placement
        return compute.size, instance.size, "+" in partition.profile, instance.start, compute.start

    return tuple(_static_partition(gpu, one, inventory) for one in sorted(mig.partitions, key=order))


def _static_partition(gpu: Gpu, partition: Partition, inventory: Inventory) -> Device:
    placement = partition.gpu_instance.placement
    compute_start = None if partition.whole_instance else partition.compute_instance.placement.start
    attributes = _attributes(gpu, inventory, partition.profile, partition.uuid)
    # The compute instances of one GPU instance have separate compute and share its memory.
    attributes["memoryIsolation"] = "hardware" if partition.whole_instance else "none"
    capacity = {
        "memory": partition.memory_bytes,
        **compute_capacity(partition.multiprocessors, partition.engines),
    }
    slices = _memory_slices(placement)
    fits = len(attributes) + len(capacity) + len(slices) <= MAX_ATTRIBUTES_AND_CAPACITIES
    return Device(
        static_device_name(gpu.pci, partition.profile, placement.start, compute_start),
        gpu.pci,
        attributes,
        capacity | slices if fits else capacity,
        span=placement,
    )


def _memory_slices(placement: Placement) -> dict[str, int]:
    """The memory slices of a static partition as capacities, as NVIDIA's own driver publishes them.

    Partitions that are made on request have none, there as here: counters keep those apart.
    """
    return {f"memorySlice{index}": 1 for index in range(placement.start, placement.start + placement.size)}


def compute_capacity(multiprocessors: int, engines: Engines) -> dict[str, int]:
    """The capacities besides memory, with the names of NVIDIA's own driver; 0 is published as 0."""
    return {
        "multiprocessors": multiprocessors,
        "copyEngines": engines.copy,
        "decoders": engines.decoders,
        "encoders": engines.encoders,
        "jpegEngines": engines.jpeg,
        "ofaEngines": engines.ofa,
    }


def _attributes(
    gpu: Gpu, inventory: Inventory, profile: str, uuid: str | None = None
) -> dict[str, AttributeValue]:
    return known(
        {
            **physical_attributes(gpu, inventory),
            "type": "mig",
            "uuid": uuid,
            "parentUUID": gpu.uuid,
            "profile": attribute_text(profile),
            # MIG gives every GPU instance memory and compute of its own.
            "sharing": "none",
            "memoryIsolation": "hardware",
        }
    )


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
