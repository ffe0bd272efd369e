"""What a GPU and a node of GPUs are: frozen values without any I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from driver.fabric.seen import NO_FABRIC, FabricView
from driver.hardware.call_effects import MEMORY_CALLS
from driver.hardware.functions import NOTHING_SEEN, PciView
from driver.hardware.vgpu import VgpuLicense
from driver.hardware.vgpu_places import VgpuHost
from driver.nvml.health.calls import FabricHealth, RecoveryAction, RemappedRows
from driver.nvml.mig import ComputeInstance, Engines, GpuInstance, GpuInstanceProfile, Placement
from driver.nvml.pci_address import PciAddress

Reason = Literal[
    "lost",
    "hung",
    "reset-required",
    "reset-when-free",
    "reboot-required",
    "memory-broken",
    "memory-suspect",
    "memory-repairable",
    "failing",
    "fabric",
    "fabric-degraded",
    "unlicensed",
    "error",
]
"""``lost``: fell off the bus. ``hung``: a call does not return. ``reset-required``: NVML says so.
``reset-when-free``: it works, and NVML wants it to be reset once its work has ended. ``reboot-required``:
the machine has to be restarted. ``memory-broken``: the memory has what nothing repairs. ``memory-suspect``:
a bad page stays in use until a reset. ``memory-repairable``: a reset replaces a row that is no longer
used. ``failing``: a call fails as it does on no healthy GPU, or one that decides about the devices fails.
``fabric``: the NVLink fabric is not up or not well, so that CUDA does not start or jobs over links fail.
``fabric-degraded``: the fabric works with less than it has. ``unlicensed``: a vGPU without a license, which
stops to compute after a while. ``error``: we cannot ask something."""


@dataclass(frozen=True, slots=True)
class Condition:
    """How well a GPU is: the answers of NVML, None for each that was not given.

    An answer that reports a fault stays while its call fails. ``recovery_action`` is ``none`` only where this
    very check got that answer. ``unsupported`` names the calls that this board cannot answer with this NVIDIA
    driver; they are not made again.
    """

    recovery_action: RecoveryAction | None = None
    rows: RemappedRows | None = None
    page_pending: bool | None = None
    unrepairable: bool | None = None
    fabric: FabricHealth | None = None
    unsupported: frozenset[str] = frozenset()


NOT_ASKED = Condition()


def unheard(condition: Condition) -> Condition:
    """What stays of an earlier check when this one gets no answer; an earlier ``none`` does not stay."""
    action = condition.recovery_action
    return replace(condition, recovery_action=None if action == "none" else action)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something is wrong with a GPU or with the whole node, found while looking at it.

    ``call`` names what was tried (an NVML call or a sysfs file), ``message`` is for people. ``value`` is one
    word for what the call answered, empty where it failed.
    """

    call: str
    reason: Reason
    message: str
    value: str = ""


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
    """A MIG device that exists: a compute instance and the GPU instance around it, also of others.

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

    ``cuda_compute_capability``, ``driver_version`` and the like are as NVML prints them; the memory is in
    bytes: ``memory_bytes`` is all of it, ``reserved_bytes`` what the NVIDIA driver keeps for itself, None
    also where a driver is too old to tell. ``links`` holds direct NVLinks; ``switch_links`` counts links into
    NVSwitches. ``pcie_switches`` are ports of PCIe switches above it, and ``cpu_affinity`` the CPUs that are
    near it, as driver.hardware.pci tells them. ``module_id`` is its place on the baseboard. ``fabric_clique``
    is ``<cluster uuid>.<clique id>`` of a multi-node NVLink domain, and only there. ``mig`` is None where the
    GPU knows no MIG or could not tell; a vGPU guest has none either. A GPU that is passed through to this
    machine is as on bare metal. ``vgpu`` is which vGPUs can be made of it, None where no vGPU manager has it.
    ``vgpu_license`` is that of a vGPU, None elsewhere and where no licensing is known. ``memory_limits`` is
    whether the NVIDIA driver can hold containers to limits of the GPU's memory, None where that was not
    asked: on a node without cgroup v2. ``unanswered`` names the calls (driver.nvml.api) that failed whenever
    this board was asked: what they would tell is not known, whereas other fields that are None are what the
    GPU does not have. ``condition`` is what NVML says of how well it is; what is wrong of it is among
    ``problems``.
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
    reserved_bytes: int | None = None
    addressing_mode: str | None = None
    numa_node: int | None = None
    pcie_root: str | None = None
    pcie_switches: tuple[str, ...] = ()
    cpu_affinity: str | None = None
    mig_capable: bool | None = None
    mig_enabled: bool | None = None
    virtualization: Literal["none", "vgpu", "host-vgpu"] | None = None
    vgpu_profile: str | None = None
    vgpu: VgpuHost | None = None
    module_id: int | None = None
    vgpu_license: VgpuLicense | None = None
    memory_limits: bool | None = None
    fabric_clique: str | None = None
    links: tuple[NvLink, ...] = ()
    switch_links: int = 0
    problems: tuple[Problem, ...] = ()
    mig: GpuMig | None = None
    unanswered: frozenset[str] = frozenset()
    condition: Condition = NOT_ASKED

    @property
    def shareable_bytes(self) -> int | None:
        """The memory that claims can divide among them; None where it is not known."""
        if self.memory_bytes is None or not self.unanswered.isdisjoint(MEMORY_CALLS):
            return None
        return self.memory_bytes - (self.reserved_bytes or 0)


@dataclass(frozen=True, slots=True)
class UnreadGpu:
    """A GPU that the NVIDIA driver has and whose identity was never read.

    ``pci`` is its address, None where sysfs does not tell it either.
    """

    pci: PciAddress | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    """All GPUs of a node at one moment, sorted by PCI address.

    ``problems`` are those that belong to no single GPU, or to one whose identity was never read. ``unread``
    are the latter: nothing is known of them but that they are there. ``pci`` is what the kernel tells of all
    GPU functions, also of those that NVML does not have. ``fabric`` is what the fabric manager tells.
    ``cgroup_v2``: the node has cgroup v2, by which alone the NVIDIA driver limits memory.
    """

    gpus: tuple[Gpu, ...] = ()
    driver_version: str | None = None
    cuda_driver_version: str | None = None
    problems: tuple[Problem, ...] = ()
    unread: tuple[UnreadGpu, ...] = ()
    pci: PciView = NOTHING_SEEN
    fabric: FabricView = NO_FABRIC
    cgroup_v2: bool = False
