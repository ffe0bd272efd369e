"""Makes the devices of a GPU's partitions: those that exist, and those that prepare makes.

Counters keep allocations from over-committing a GPU: all its forms consume from one counter set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from driver.devices.device import MEMORY_SLICE, AttributeValue, CounterSet, Device
from driver.devices.limits import MAX_ATTRIBUTES_AND_CAPACITIES
from driver.devices.names import gpu_device_name
from driver.hardware.gpu import Gpu, GpuMig, Inventory, Partition
from driver.health.problems import taints
from driver.kinds.gpu_attributes import attribute_text, known, physical_attributes
from driver.kinds.partition.layouts import Placed, largest_profile, memory_slices
from driver.kinds.partition.names import partition_device_name, static_device_name
from driver.nvml.mig import Engines, GpuInstanceProfile, Placement

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
    slices = _memory_slices(placement)
    fits = len(attributes) + len(capacity) + len(slices) <= MAX_ATTRIBUTES_AND_CAPACITIES
    return Device(
        static_device_name(gpu.pci, partition.profile, placement.start, compute_start),
        gpu.pci,
        attributes,
        capacity | slices if fits else capacity,
        taints(gpu.problems),
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
