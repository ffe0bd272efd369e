"""What a node offers in ResourceSlices: devices, taints, counters; values without any I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from driver.devices.region import Region
from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress


@dataclass(frozen=True, slots=True)
class Version:
    """An attribute value of type version: semantic versioning 2.0.0, at most 64 characters."""

    text: str


AttributeValue = bool | int | str | Version
"""The attribute types of resource.k8s.io/v1 without lists, which are alpha."""


def attribute_json(value: AttributeValue) -> dict[str, Any]:
    """The value as an attribute of resource.k8s.io/v1 (DeviceAttribute)."""
    match value:
        # bool before int: in Python a bool is an int too.
        case bool():
            return {"bool": value}
        case int():
            return {"int": value}
        case Version():
            return {"version": value.text}
        case _:
            return {"string": value}


# All names of counters are those of NVIDIA's own driver.
MEMORY_SLICE = "memory-slice-"
"""What the counter of a memory slice is called, without its number."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A device taint of resource.k8s.io/v1; ``time_added`` is set by the API server when absent."""

    key: str
    value: str
    effect: Literal["None", "NoSchedule", "NoExecute"]


@dataclass(frozen=True, slots=True)
class CounterSet:
    """The counters of one GPU (resource.k8s.io/v1 CounterSet), from which the forms of the GPU consume.

    They keep the scheduler from handing out two forms that exclude each other. ``name`` is a DNS label,
    unique in the pool; ``counters`` maps names (DNS labels) to amounts.
    """

    name: str
    pci: PciAddress
    counters: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How much of a capacity a claim can take (resource.k8s.io/v1 CapacityRequestPolicy), in base units.

    A claim that asks for no amount takes ``default``. With ``step`` a claim takes ``minimum`` plus any number
    of steps; without ``step`` it can only take the default.
    """

    default: int
    minimum: int = 0
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """One device that the node offers, as it is written into a ResourceSlice.

    Attribute and capacity keys are qualified names, without a domain if it is the driver's. Capacities are in
    base units (bytes, counts).
    """

    name: str
    # The GPU that the device is or lies on; None if it lies on no GPU.
    pci: PciAddress | None
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    # The place of a partition in the memory slices of its GPU; None if the device takes all of the GPU.
    span: Placement | None = None
    # The counter set from which the device consumes, and what; both are empty for a device without counters.
    counter_set: str = ""
    consumes: Mapping[str, int] = field(default_factory=dict)
    # Makes the device shared, so that several claims can have it at once; then it names every capacity.
    policies: Mapping[str, RequestPolicy] = field(default_factory=dict)
    # What a device that spans several GPUs takes of the others, and of their counter sets, by name.
    more_regions: tuple[Region, ...] = ()
    more_consumes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def takes_all(self) -> bool:
        """Whether it takes all of its GPU, for one claim or shared by several."""
        return self.pci is not None and self.span is None

    @property
    def consumed_sets(self) -> Mapping[str, Mapping[str, int]]:
        """What it consumes of each counter set, by the set's name; empty for a device without counters."""
        own = {self.counter_set: self.consumes} if self.counter_set else {}
        return {**own, **self.more_consumes}

    def consuming_all(self, sets: Sequence[CounterSet]) -> Device:
        """The device as one that consumes all of these counters; as it is if there are none."""
        if not sets:
            return self
        first, *more = sets
        return replace(
            self,
            counter_set=first.name,
            consumes=dict(first.counters),
            more_consumes={one.name: dict(one.counters) for one in more},
        )

    @property
    def regions(self) -> tuple[Region, ...]:
        """What it takes of GPUs; empty if it lies on no GPU."""
        return () if self.pci is None else (Region(self.pci, self.span), *self.more_regions)
