"""Makes the devices of a GPU's partitions: those that exist, and those that are made on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.devices.device import Device
from driver.devices.limits import MAX_ATTRIBUTES_AND_CAPACITIES
from driver.health.problems import taints
from driver.kinds.gpu_attributes import attribute_text, known, physical_attributes
from driver.kinds.partition.counters import consumed
from driver.kinds.partition.names import partition_device_name, static_device_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from driver.devices.device import AttributeValue, CounterSet
    from driver.hardware.gpu import Gpu, GpuMig, Inventory, Partition
    from driver.kinds.partition.layouts import Placed
    from driver.nvml.mig import Engines, Placement


def made_partitions(
    gpu: Gpu, inventory: Inventory, offered: Iterable[Placed], counters: CounterSet | None = None
) -> tuple[Device, ...]:
    """Partitions that are made when a claim is prepared, in the order given; with counters where given."""
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
    """The partitions that exist on the GPU: small ones first, without media engines before with, by place.

    The first that fits is given out, so that a media engine is not spent on who asked for none.
    """

    def order(partition: Partition) -> tuple[int, int, bool, int, int]:
        instance, compute = partition.gpu_instance.placement, partition.compute_instance.placement
        return compute.size, instance.size, "+" in partition.profile, instance.start, compute.start

    return tuple(_static_partition(gpu, one, inventory) for one in sorted(mig.partitions, key=order))


def _static_partition(gpu: Gpu, partition: Partition, inventory: Inventory) -> Device:
    placement = partition.gpu_instance.placement
    compute_start = None if partition.whole_instance else partition.compute_instance.placement.start
    attributes = _attributes(gpu, inventory, partition.profile, partition.uuid)
    # The parts of one GPU instance have their own compute, and its memory in common.
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
    """The memory slices of a static partition as NVIDIA's own driver tells them, for selectors on them.

    That driver has none on partitions which are made on request, where counters keep partitions apart.
    """
    return {f"memorySlice{index}": 1 for index in range(placement.start, placement.start + placement.size)}


def compute_capacity(multiprocessors: int, engines: Engines) -> dict[str, int]:
    """What a form of a GPU has besides memory, named as NVIDIA's own driver names it; 0 is told as 0."""
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
            # MIG gives every GPU instance memory and compute of its own: that is what it is for.
            "sharing": "none",
            "memoryIsolation": "hardware",
        }
    )
