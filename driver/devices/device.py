"""What a node offers in ResourceSlices: devices, taints, counters; values without any I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from driver.devices.region import Region
from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress


@dataclass(frozen=True, slots=True)
class Version:
    """An attribute value of type version: semantic versioning 2.0.0, at most 64 characters."""

    text: str


AttributeValue = bool | int | str | Version
"""The scalar attribute types of resource.k8s.io/v1; bool before int, since it is one in Python."""


def attribute_json(value: AttributeValue) -> dict[str, Any]:
    """The value as an attribute of resource.k8s.io/v1 (DeviceAttribute)."""
    match value:
        case bool():
            return {"bool": value}
        case int():
            return {"int": value}
        case Version():
            return {"version": value.text}
        case _:
            return {"string": value}


MEMORY_SLICE = "memory-slice-"
"""Before the number of a memory slice; all names of counters are those of NVIDIA's own driver."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A device taint of resource.k8s.io/v1; ``time_added`` is set by the API server when absent."""

    key: str
    value: str
    effect: Literal["None", "NoSchedule", "NoExecute"]


@dataclass(frozen=True, slots=True)
class CounterSet:
    """The counters of one GPU (resource.k8s.io/v1 CounterSet): what its exclusive forms take from each other.

    ``name`` is a DNS label, unique in the pool; ``counters`` maps names (DNS labels) to amounts.
    """

    name: str
    pci: PciAddress
    counters: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How much of a capacity a claim can take (resource.k8s.io/v1 CapacityRequestPolicy), in base units.

    ``default`` is taken by a claim that does not ask. With ``step`` a claim takes ``minimum``, or any number
    of steps more; without it, nothing but the default.
    """

    default: int
    minimum: int = 0
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """One device that the node offers, as a ResourceSlice will have it.

    Attribute and capacity keys are qualified names, bare where the domain is the driver's. Capacities are in
    base units (bytes, counts). ``pci`` is the GPU that the device is or lies on, None for one that lies on
    no GPU. ``span`` is the place of a partition in the memory slices of its GPU, None for a device that
    takes all of the GPU. ``consumes`` is what the device takes from the counter set named ``counter_set``;
    both are empty for a device without counters. ``policies`` makes it a shared device, which several claims
    can be given at once: it then names every capacity. ``more_regions`` is what a device that spans several
    GPUs takes of the others, and ``more_consumes`` what it takes of other counter sets, by their names: the
    API knows two sets for a device at most.
    """

    name: str
    pci: PciAddress | None
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    span: Placement | None = None
    counter_set: str = ""
    consumes: Mapping[str, int] = field(default_factory=dict)
    policies: Mapping[str, RequestPolicy] = field(default_factory=dict)
    more_regions: tuple[Region, ...] = ()
    more_consumes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def takes_all(self) -> bool:
        """Whether it takes all of its GPU, whether for one claim or for several."""
        return self.pci is not None and self.span is None

    @property
    def consumed_sets(self) -> Mapping[str, Mapping[str, int]]:
        """What it takes of each counter set, by the set's name; empty for a device without counters."""
        own = {self.counter_set: self.consumes} if self.counter_set else {}
        return {**own, **self.more_consumes}

    @property
    def regions(self) -> tuple[Region, ...]:
        """What it takes of GPUs; nothing where it lies on none."""
        return () if self.pci is None else (Region(self.pci, self.span), *self.more_regions)
