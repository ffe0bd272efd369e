"""The counters of one GPU: what its forms take from each other, so that no allocation over-commits it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.devices.device import MEMORY_SLICE, CounterSet
from driver.devices.names import gpu_device_name
from driver.kinds.partition.layouts import largest_profile, memory_slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from driver.hardware.gpu import Gpu, GpuMig
    from driver.kinds.partition.layouts import Placed
    from driver.nvml.mig import Engines, GpuInstanceProfile, Placement


ENGINE_COUNTERS = ("copy-engines", "decoders", "encoders", "jpeg-engines", "ofa-engines")


def counter_set(gpu: Gpu, mig: GpuMig, offered: Sequence[Placed]) -> CounterSet:
    """The counters that keep ``offered`` partitions and the whole GPU apart.

    Each memory slice is a counter. Engines of a kind are one only where partitions that share no memory
    slice can need more of them than the GPU has: each counter costs the scheduler time.
    """
    slices = memory_slices(mig)
    counters = {f"{MEMORY_SLICE}{index}": 1 for index in range(slices)}
    whole = largest_profile(mig)
    there = _engines(whole.engines) if whole else {}
    counters |= {name: count for name, count in there.items() if _most_needed(name, offered, slices) > count}
    return CounterSet(gpu_device_name(gpu.pci), gpu.pci, counters)


def consumed(counters: CounterSet, profile: GpuInstanceProfile, placement: Placement) -> dict[str, int]:
    """What a partition takes: its memory slices, and its engines of the kinds that are counted."""
    slices = range(placement.start, placement.start + placement.size)
    engines = {name: count for name, count in _engines(profile.engines).items() if name in counters.counters}
    return {f"{MEMORY_SLICE}{index}": 1 for index in slices} | {
        name: count for name, count in engines.items() if count
    }


def _most_needed(name: str, offered: Sequence[Placed], slices: int) -> int:
    """The most engines of a kind that partitions which share no memory slice can need together.

    Worked out from the last memory slice to the first: either nothing begins there, or one partition does.
    """
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
