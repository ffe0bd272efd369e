"""Makes the devices of a GPU's partitions: those that exist, and those that prepare makes.

Counters keep allocations from over-committing a GPU: all its forms consume from one counter set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations

from driver.devices.device import MEMORY_SLICE, AttributeValue, CounterSet, Device
from driver.devices.names import gpu_device_name
from driver.hardware.gpu import Gpu, GpuMig, Inventory, Partition
from driver.health.problems import taints
from driver.kinds.gpu_attributes import attribute_text, known, physical_attributes
from driver.kinds.partition.layouts import Placed, largest_profile, memory_slices
from driver.kinds.partition.names import partition_device_name, static_device_name
from driver.nvml.mig import Engines, GpuInstanceProfile, Placement

ENGINE_COUNTERS = ("copy-engines", "decoders", "encoders", "jpeg-engines", "ofa-engines")

# The scheduler converts all attributes and capacities of a device for each selector, so a partition has only
# those that people select partitions by.
_NOT_OF_PARTITIONS = frozenset({"addressingMode", "brand"})


def counter_set(gpu: Gpu, mig: GpuMig, offered: Sequence[Placed], ways: int = 1) -> CounterSet:
    """The counters that keep the ``offered`` partitions and the whole GPU apart.

    Neighbouring memory slices that no partition needs apart are one counter, named after the first of them.
    Each kind of engine that can run short is a counter too. ``ways`` is how often each partition is offered,
    as devices that exclude each other.
    """
    slices = memory_slices(mig)
    blocks = _blocks(slices, tuple(placement for _, placement in offered) * ways)
    counters = {f"{MEMORY_SLICE}{block.start}": block.size for block in blocks}
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
    slices = {
        name: _common(Placement(int(name.removeprefix(MEMORY_SLICE)), size), placement)
        for name, size in counters.counters.items()
        if name.startswith(MEMORY_SLICE)
    }
    engines = {name: count for name, count in _engines(profile.engines).items() if name in counters.counters}
    return {name: count for name, count in (slices | engines).items() if count}


@lru_cache(maxsize=64)  # the same for all GPUs of a model
def _blocks(slices: int, offered: tuple[Placement, ...]) -> tuple[Placement, ...]:
    """The memory slices in as few blocks as keep the offered placements apart, each to be one counter."""
    # The scheduler pays for each counter of a node, for each pod. Disjoint placements always fit into the
    # blocks together. Those that overlap must exceed a block, or the scheduler would allocate both.
    overlapping = [(one, other) for one, other in combinations(offered, 2) if one.overlaps(other)]
    blocks = [Placement(start, 1) for start in range(slices)]
    for index in reversed(range(1, slices)):
        merged = [
            *blocks[: index - 1],
            Placement(index - 1, 1 + blocks[index].size),
            *blocks[index + 1 :],
        ]
        if all(
            any(_common(one, block) + _common(other, block) > block.size for block in merged)
            for one, other in overlapping
        ):
            blocks = merged
    return tuple(blocks)


def _common(one: Placement, other: Placement) -> int:
    """How many memory slices two placements have in common."""
    return max(0, min(one.start + one.size, other.start + other.size) - max(one.start, other.start))


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
            taints(gpu.problems),
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
    return Device(
        static_device_name(gpu.pci, partition.profile, placement.start, compute_start),
        gpu.pci,
        attributes,
        capacity | _memory_slices(placement),
        taints(gpu.problems),
        span=placement,
    )


def _memory_slices(placement: Placement) -> dict[str, int]:
    """The memory slices of a static partition as capacities, as NVIDIA's own driver publishes them.

    Partitions that are made on request have none, there as here: counters keep those apart.
    """
    return {f"memorySlice{index}": 1 for index in range(placement.start, placement.start + placement.size)}


def compute_capacity(multiprocessors: int, engines: Engines) -> dict[str, int]:
    """The capacities besides memory, with the names of NVIDIA's own driver; 0 is published as 0.

    The other engines (copyEngines, jpegEngines, ofaEngines) follow from the profile, and nobody selects by
    them.
    """
    return {
        "multiprocessors": multiprocessors,
        "decoders": engines.decoders,
        "encoders": engines.encoders,
    }


def _attributes(
    gpu: Gpu, inventory: Inventory, profile: str, uuid: str | None = None
) -> dict[str, AttributeValue]:
    physical = physical_attributes(gpu, inventory)
    return known(
        {
            **{name: value for name, value in physical.items() if name not in _NOT_OF_PARTITIONS},
            "type": "mig",
            "uuid": uuid,
            "parentUUID": gpu.uuid,
            "profile": attribute_text(profile),
            # MIG gives every GPU instance memory and compute of its own.
            "memoryIsolation": "hardware",
        }
    )
