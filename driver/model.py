"""What a GPU, a node and an offered device are: frozen values without any I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from driver.mig import (
        ComputeInstance,
        Engines,
        GpuInstance,
        GpuInstanceProfile,
        Placement,
    )

_PCI = re.compile(
    r"^(?P<domain>[0-9a-f]{4,8}):(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})\.(?P<function>[0-7])$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, order=True)
class PciAddress:
    """Where a function sits on the PCI bus; sorts as the kernel enumerates."""

    domain: int
    bus: int
    device: int
    function: int

    @classmethod
    def parse(cls, text: str) -> PciAddress:
        """Read ``0000:8a:00.0`` or NVML's eight-digit upper-case form; raises ValueError otherwise."""
        match = _PCI.match(text)
        if match is None:
            raise ValueError(f"{text!r} is not a PCI address like 0000:8a:00.0")
        return cls(*(int(match[part], 16) for part in ("domain", "bus", "device", "function")))

    def __str__(self) -> str:
        """The form of sysfs and of resource.kubernetes.io/pciBusID: lower case, four-digit domain."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something is wrong with a GPU or with the whole node, found while looking at it.

    ``call`` names what was tried (an NVML call or a sysfs file), ``reason`` is a short stable word
    (``lost``, ``hung``, ``error``), ``message`` is for people.
    """

    call: str
    reason: Literal["lost", "hung", "error"]
    message: str


@dataclass(frozen=True, slots=True)
class NvLink:
    """The active NVLinks of one GPU to one other GPU: how many there are."""

    peer: PciAddress
    count: int


@dataclass(frozen=True, slots=True)
class PlacedProfile:
    """A kind of GPU instance that a GPU offers, with the places where one can lie when the GPU is empty."""

    profile: GpuInstanceProfile
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """A MIG device that exists: a compute instance and the GPU instance around it, whoever made them.

    ``profile`` is the name of the partition: ``1g.10gb``, or ``1c.3g.40gb`` where the compute instance is
    only a part of its GPU instance. The engines of such a part are shared with the other parts.
    """

    uuid: str
    profile: str
    gpu_instance: GpuInstance
    compute_instance: ComputeInstance
    memory_bytes: int
    multiprocessors: int
    engines: Engines

    @property
    def whole_instance(self) -> bool:
        """Whether the compute instance is all of its GPU instance."""
        return "c." not in self.profile


@dataclass(frozen=True, slots=True)
class GpuMig:
    """What MIG is on one GPU that knows it.

    ``enabled`` is the mode now, ``pending`` the one after the next reset. ``without_reset`` says whether
    the mode can be changed now, without a reset. ``profiles`` are in the order of NVML's indexes.
    ``instances`` are the GPU instances that exist, also one in which no compute instance was made (yet);
    ``partitions`` are the compute instances. Both are in the order of ids.
    """

    enabled: bool
    pending: bool
    without_reset: bool
    profiles: tuple[PlacedProfile, ...]
    instances: tuple[GpuInstance, ...] = ()
    partitions: tuple[Partition, ...] = ()


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU as it is now. Every field that may be unknown is None when it is.

    ``cuda_compute_capability``, ``driver_version`` and the like are as NVML prints them; the memory
    is in bytes. ``links`` holds direct NVLinks; ``switch_links`` counts links into NVSwitches.
    ``fabric_clique`` is ``<cluster uuid>.<clique id>`` of a multi-node NVLink domain, and only there.
    ``mig`` is None where the GPU knows no MIG or could not tell; a vGPU guest has none either.
    """

    pci: PciAddress
    uuid: str
    minor: int
    index: int
    product_name: str | None = None
    brand: str | None = None
    architecture: str | None = None
    cuda_compute_capability: str | None = None
    memory_bytes: int | None = None
    addressing_mode: str | None = None
    numa_node: int | None = None
    pcie_root: str | None = None
    mig_capable: bool | None = None
    mig_enabled: bool | None = None
    virtualization: Literal["none", "vgpu"] | None = None
    vgpu_profile: str | None = None
    fabric_clique: str | None = None
    links: tuple[NvLink, ...] = ()
    switch_links: int = 0
    problems: tuple[Problem, ...] = ()
    mig: GpuMig | None = None


@dataclass(frozen=True, slots=True)
class Inventory:
    """All GPUs of a node at one moment, sorted by PCI address.

    ``problems`` are those that belong to no single GPU, or to one that never told who it is.
    """

    gpus: tuple[Gpu, ...] = ()
    driver_version: str | None = None
    cuda_driver_version: str | None = None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Version:
    """An attribute value of type version: semantic versioning 2.0.0, at most 64 characters."""

    text: str


AttributeValue = bool | int | str | Version
"""The scalar attribute types of resource.k8s.io/v1; bool before int, since it is one in Python."""


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
    """One device that the node offers, as it will stand in a ResourceSlice.

    Attribute and capacity keys are qualified names, bare where the domain is the driver's.
    Capacities are in base units (bytes, counts). ``span`` is the place of a partition in the memory
    slices of its GPU, None for a device that is the whole GPU. ``consumes`` is what the device takes
    from the counter set named ``counter_set``; both are empty for a device without counters. ``policies``
    makes it a shared device, which several claims can be given at once: it then names every capacity.
    """

    name: str
    pci: PciAddress
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    span: Placement | None = None
    counter_set: str = ""
    consumes: Mapping[str, int] = field(default_factory=dict)
    policies: Mapping[str, RequestPolicy] = field(default_factory=dict)
