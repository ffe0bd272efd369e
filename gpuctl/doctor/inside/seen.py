"""Holds what was read on a node; the checks are functions of it alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from driver.errors import DriverError
from driver.fabric.api import FabricPartition
from driver.hardware.functions import NOTHING_SEEN, PciFunction, PciView
from driver.hardware.gpu import Inventory
from driver.nvml.memory_limits import MemoryLimits
from driver.nvml.pci_address import PciAddress
from driver.roots.probe import ProbedPlace
from gpuctl.cli.unread import Unread
from gpuctl.doctor.inside.places import Places
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.devices.host.driver_files import DriverFiles
from kubeletplugin.kubelet.wire.mps_daemon import MpsState

PASSTHROUGH, VGPU, IOMMUFD = "passthrough", "vgpu", "iommufd"
TO_MACHINES = (PASSTHROUGH, VGPU, IOMMUFD)
"""What a node can offer to virtual machines; the last is how they reach the IOMMU."""


@dataclass(frozen=True, slots=True)
class SpecSeen:
    """A CDI spec of a claim: its device names, its device nodes that the node lacks, and what is wrong."""

    uid: str
    names: tuple[str, ...] = ()
    missing_nodes: tuple[str, ...] = ()
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """A configuration file of a container runtime.

    ``cdi`` is whether CDI is on, None if the file does not say. ``folders`` are the folders of CDI specs,
    None for the defaults. ``since_2``: the file is written for containerd 2, where CDI is on by default.
    """

    file: str
    runtime: Literal["containerd", "cri-o"]
    cdi: bool | None = None
    folders: tuple[str, ...] | None = None
    since_2: bool = False
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class SharingSeen:
    """A record of sharing: the group of what is shared, and whether an MPS daemon has to run for it."""

    group: str
    daemon: bool = False
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class FabricSeen:
    """The fabric manager's partitions, None without a shared fabric, and those in the plugin's records."""

    partitions: tuple[FabricPartition, ...] | Unread | None
    noted: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class LimitSeen:
    """The memory limit that the ledger has for a running container.

    ``hard_bytes`` is the limit by the ledger, ``in_nvml`` what NVML answers: None for no limit.
    """

    claim_uid: str
    pci: str
    container: str
    hard_bytes: int
    in_nvml: MemoryLimits | Unread | None


@dataclass(frozen=True, slots=True)
class HookSeen:
    """A copy of gpu-memory-hook on the host.

    ``wrong`` says why it cannot be run; empty if it can. ``is_own`` is whether it is the same program as in
    this image, None outside of an image.
    """

    path: str
    wrong: str = ""
    is_own: bool | None = None


@dataclass(frozen=True, slots=True)
class HookSocketsSeen:
    """The folder of the plugin's sockets for gpu-memory-hook.

    ``answers`` says of each socket, by name, whether the plugin answers there. ``open_to_others`` are paths
    that other users may reach, with the reason.
    """

    folder: str
    answers: tuple[tuple[str, bool], ...] = ()
    open_to_others: tuple[str, ...] = ()
    is_there: bool = True


@dataclass(frozen=True, slots=True)
class MemorySeen:
    """How memory limits are enforced. ``wrong`` are files of the ledger that cannot be read.

    ``named`` are the hooks that CDI specs of claims name, ``copies`` those that the plugin put on the host.
    """

    limits: tuple[LimitSeen, ...] = ()
    wrong: tuple[str, ...] = ()
    named: tuple[HookSeen, ...] = ()
    copies: tuple[HookSeen, ...] = ()
    sockets: HookSocketsSeen = field(default_factory=lambda: HookSocketsSeen("", is_there=False))


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node at one moment.

    ``looked`` are the places where the NVIDIA driver may be installed, with what was found there.
    ``device_nodes`` are the character devices below ``/dev`` of the driver root, by their paths in
    containers. ``gpus_on_bus`` is how many GPUs of NVIDIA sysfs shows, whatever their kernel driver.
    ``kernel_driver`` is the version of the loaded kernel module, None without one. ``cgroups`` is the
    version of control groups. ``journal`` has the entries by claim UID, or why one cannot be read;
    ``put_aside`` are the files that the plugin could not read. ``plugins`` has the answer at each plugin
    socket. ``in_containers`` are the CDI devices of this driver that the kubelet has given to containers.
    ``kernel`` concerns virtual machines, ``memory`` memory limits. ``no_channels`` is what would keep a claim
    for an IMEX channel waiting, None if nothing would, or if the node is in no NVLink clique.
    """

    places: Places
    looked: tuple[ProbedPlace, ...]
    driver_files: DriverFiles | Unread
    kernel_driver: str | None
    gpus_on_bus: int
    inventory: Inventory | Unread
    device_nodes: frozenset[str]
    cgroups: Literal[1, 2] | None
    runtimes: tuple[RuntimeConfig, ...]
    cdi_writable: bool | Unread
    journal: Mapping[str, Entry | Unread] | Unread
    put_aside: tuple[str, ...]
    specs: tuple[SpecSeen, ...] | Unread
    sharing: tuple[SharingSeen, ...]
    daemons: tuple[MpsState, ...] | Unread
    plugins: Mapping[str, str]
    registrations: tuple[str, ...]
    in_containers: frozenset[str] | Unread
    kernel: KernelSeen
    fabric: FabricSeen = field(default_factory=lambda: FabricSeen(None))
    memory: MemorySeen = field(default_factory=MemorySeen)
    no_channels: DriverError | None = None


@dataclass(frozen=True, slots=True)
class LicenseClient:
    """What is installed and configured for vGPU licenses below the driver root, or on the host.

    ``programs`` are those found that only NVIDIA's vGPU software has. ``servers`` says where licenses come
    from: files with a token, and gridd.conf if it names a server.
    """

    programs: frozenset[str] = frozenset()
    servers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelSeen:
    """What the kernel shows.

    ``offers`` is what the node offers to virtual machines: by ``--offers``, or by what is bound and prepared.
    ``vgpus`` are the functions whose config space says that they are vGPUs. ``iommus`` are the IOMMUs that
    the kernel drives; ``asked_iommu`` is whether its command line asks for one. ``loaded`` are the loaded
    modules of VFIO, ``installed`` those that could be loaded, None if the folder of modules cannot be read.
    ``without_iommu`` and ``unsafe_interrupts`` are parameters of VFIO, None if its module is not loaded.
    """

    offers: frozenset[str] = frozenset()
    pci: PciView = NOTHING_SEEN
    vgpus: frozenset[PciAddress] = frozenset()
    iommus: tuple[str, ...] = ()
    asked_iommu: bool = False
    loaded: frozenset[str] = frozenset()
    installed: frozenset[str] | None = None
    without_iommu: bool | None = None
    unsafe_interrupts: bool | None = None
    licenses: LicenseClient = field(default_factory=LicenseClient)

    @property
    def gpus(self) -> tuple[PciFunction, ...]:
        """The GPUs, without SR-IOV virtual functions."""
        return self.pci.physical
