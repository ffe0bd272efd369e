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
    # The GPU fell off the bus.
    "lost",
    # A call does not return.
    "hung",
    # NVML says that only a reset makes the GPU usable again.
    "reset-required",
    # The GPU works, and NVML wants a reset once its work has ended.
    "reset-when-free",
    # The machine has to be restarted.
    "reboot-required",
    # Nothing repairs the memory: the board has to be replaced.
    "memory-broken",
    # A bad page of the memory stays in use until a reset.
    "memory-suspect",
    # A bad row of the memory is replaced at the next reset.
    "memory-repairable",
    # A call fails that fails on no healthy GPU, or a call fails that decides about the devices.
    "failing",
    # The NVLink fabric is not up or not healthy, so CUDA does not start, or jobs over links fail.
    "fabric",
    # The fabric works with reduced capacity.
    "fabric-degraded",
    # A vGPU has no license, and CUDA stops to work on it after a while.
    "unlicensed",
    # A call cannot be made, which says nothing about the GPU.
    "error",
]
"""What is wrong with a GPU, in one word."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The health of a GPU: NVML's answers, None for each missing one.

    An answer that reports a fault stays while its call fails.
    """

    # ``none`` only if this very check got that answer.
    recovery_action: RecoveryAction | None = None
    rows: RemappedRows | None = None
    page_pending: bool | None = None
    unrepairable: bool | None = None
    fabric: FabricHealth | None = None
    # The calls that this board does not support with this NVIDIA driver. They are not made again.
    unsupported: frozenset[str] = frozenset()


NOT_ASKED = Condition()


def without_answers(condition: Condition) -> Condition:
    """What stays of an earlier check if the calls of this one get no answers."""
    # A fault stays until NVML says that it is over. ``none`` does not stay: it would say that the GPU is
    # healthy although nobody has checked.
    action = condition.recovery_action
    return replace(condition, recovery_action=None if action == "none" else action)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with a GPU or with the whole node, found by a check."""

    # What was tried: an NVML call or a sysfs file.
    call: str
    reason: Reason
    # For people.
    message: str
    # The answer of the call in one word, empty if the call failed.
    value: str = ""


@dataclass(frozen=True, slots=True)
class NvLink:
    """The number of active NVLinks from one GPU to another."""

    peer: PciAddress
    count: int


@dataclass(frozen=True, slots=True)
class PlacedProfile:
    """A profile that a GPU offers, with its possible placements on the empty GPU."""

    profile: GpuInstanceProfile
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """A MIG device that exists, whoever made it: a compute instance and the GPU instance around it.

    ``profile`` is the name of the partition: ``1g.10gb``, or ``1c.3g.40gb`` if the compute instance is only a
    part of its GPU instance. The parts of a GPU instance share its engines.
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
        """Whether the compute instance has all of its GPU instance."""
        return "c." not in self.profile


@dataclass(frozen=True, slots=True)
class GpuMig:
    """The state of MIG on a GPU that supports it."""

    # The mode now.
    enabled: bool
    # The mode after the next reset. It differs only on GPUs that need a reset to change it.
    pending: bool
    # Whether the mode can be changed without a reset.
    without_reset: bool
    # In the order of NVML's indexes.
    profiles: tuple[PlacedProfile, ...]
    # All GPU instances, in the order of ids, also those without a compute instance.
    instances: tuple[GpuInstance, ...] = ()
    # All compute instances, in the order of ids.
    partitions: tuple[Partition, ...] = ()


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU as it is now. A field is None if its value is unknown or the GPU does not have it.

    ``unanswered`` tells the two apart. A GPU that is passed through to this machine is like one on bare
    metal.
    """

    pci: PciAddress
    uuid: str
    # The N of /dev/nvidiaN, which a reset or a reboot may change.
    minor: int
    # NVML's index, in the order of PCI addresses.
    index: int
    product_name: str | None = None
    brand: str | None = None
    architecture: str | None = None
    # As NVML prints it: 9.0.
    cuda_compute_capability: str | None = None
    memory_bytes: int | None = None
    # The part of the memory that the NVIDIA driver keeps for itself. Drivers before R510 do not report it.
    reserved_bytes: int | None = None
    addressing_mode: str | None = None
    numa_node: int | None = None
    # These three are as driver.hardware.pci reads them from sysfs.
    pcie_root: str | None = None
    pcie_switches: tuple[str, ...] = ()
    cpu_affinity: str | None = None
    mig_capable: bool | None = None
    mig_enabled: bool | None = None
    virtualization: Literal["none", "vgpu", "host-vgpu"] | None = None
    # The profile of a vGPU, on a machine that is a guest.
    vgpu_profile: str | None = None
    # The vGPUs that can be made of the GPU, if a vGPU manager has it.
    vgpu: VgpuHost | None = None
    # The slot on the baseboard, by which the fabric manager names its GPUs.
    module_id: int | None = None
    # The license of a vGPU, on a machine that is a guest.
    vgpu_license: VgpuLicense | None = None
    # Whether the NVIDIA driver can limit how much of the memory a container allocates. That is asked only on
    # a node with cgroup v2.
    memory_limits: bool | None = None
    # ``<cluster uuid>.<clique id>`` in a multi-node NVLink domain.
    fabric_clique: str | None = None
    # Direct NVLinks to other GPUs, and the number of links into NVSwitches.
    links: tuple[NvLink, ...] = ()
    switch_links: int = 0
    # All that is wrong with the GPU, also what follows from ``condition``.
    problems: tuple[Problem, ...] = ()
    # None also in a vGPU guest, which may not use MIG.
    mig: GpuMig | None = None
    # The calls of driver.nvml.api that have never succeeded for this board: what they would report is
    # unknown.
    unanswered: frozenset[str] = frozenset()
    condition: Condition = NOT_ASKED

    @property
    def shareable_bytes(self) -> int | None:
        """The memory that claims can divide; None if it is not known."""
        if self.memory_bytes is None or not self.unanswered.isdisjoint(MEMORY_CALLS):
            return None
        return self.memory_bytes - (self.reserved_bytes or 0)


@dataclass(frozen=True, slots=True)
class UnreadGpu:
    """A GPU that the NVIDIA driver holds and whose identity was never read.

    ``pci`` is its address, None if sysfs does not show it either.
    """

    pci: PciAddress | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    """All GPUs of a node at one moment, sorted by PCI address."""

    gpus: tuple[Gpu, ...] = ()
    driver_version: str | None = None
    cuda_driver_version: str | None = None
    # Problems of the node, and of GPUs whose identity was never read.
    problems: tuple[Problem, ...] = ()
    # These GPUs: nothing is known of them except that they exist.
    unread: tuple[UnreadGpu, ...] = ()
    # What the kernel shows of all GPU functions, also of those that NVML does not list.
    pci: PciView = NOTHING_SEEN
    # What the fabric manager reports.
    fabric: FabricView = NO_FABRIC
    # Whether the node has cgroup v2, which the NVIDIA driver needs to limit memory.
    cgroup_v2: bool = False
