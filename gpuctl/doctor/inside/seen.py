"""What was seen on a node, frozen, so that checks are functions of it alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from driver.fabric.api import FabricPartition
from driver.hardware.functions import NOTHING_SEEN, PciFunction, PciView
from driver.hardware.gpu import Inventory
from driver.nvml.memory_limits import MemoryLimits
from driver.nvml.pci_address import PciAddress
from driver.roots.probe import ProbedPlace
from gpuctl.doctor.inside.places import Places
from gpuctl.doctor.outside.seen import Unread
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.devices.host.driver_files import DriverFiles
from kubeletplugin.kubelet.wire.mps_daemon import MpsState

PASSTHROUGH, VGPU, IOMMUFD = "passthrough", "vgpu", "iommufd"
TO_MACHINES = (PASSTHROUGH, VGPU, IOMMUFD)
"""What a node can offer to virtual machines, and by which way to the IOMMU."""


@dataclass(frozen=True, slots=True)
class SpecSeen:
    """A CDI spec of a claim: its device names, those of its device nodes that are missing, what is wrong."""

    uid: str
    names: tuple[str, ...] = ()
    missing_nodes: tuple[str, ...] = ()
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """A configuration file of a container runtime.

    ``cdi`` says whether CDI is on, None where the file does not; ``folders`` are those that it reads specs
    from, None for its defaults. ``since_2`` is whether the file is of containerd 2, whose default is on.
    """

    file: str
    runtime: Literal["containerd", "cri-o"]
    cdi: bool | None = None
    folders: tuple[str, ...] | None = None
    since_2: bool = False
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class SharingSeen:
    """A record of sharing: what is shared, and whether an MPS daemon is to run for it."""

    group: str
    daemon: bool = False
    boot_id: str = ""
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class FabricSeen:
    """The fabric manager's partitions, None without a shared fabric, and those that the plugin has noted."""

    partitions: tuple[FabricPartition, ...] | Unread | None
    noted: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class LimitSeen:
    """A part of a claim's memory that the ledger has for a container that lives.

    ``hard_bytes`` is what it may have, ``told`` what NVML says: None for no limit.
    """

    claim_uid: str
    pci: str
    container: str
    hard_bytes: int
    told: MemoryLimits | Unread | None


@dataclass(frozen=True, slots=True)
class HookSeen:
    """A program of the hook on the host: whether it can be run, and what it is.

    ``wrong`` says why it cannot be run, empty where it can. ``is_own`` is whether it is that of the image
    here, None where there is no image.
    """

    path: str
    wrong: str = ""
    is_own: bool | None = None


@dataclass(frozen=True, slots=True)
class HookSocketsSeen:
    """The folder of the plugin's sockets for the hook: ``answers`` by name, and what is wrong with rights."""

    folder: str
    answers: tuple[tuple[str, bool], ...] = ()
    open_to_others: tuple[str, ...] = ()
    is_there: bool = True


@dataclass(frozen=True, slots=True)
class MemorySeen:
    """What holds containers to their memory. ``wrong`` are files of the ledger that cannot be read.

    ``named`` are the hooks that CDI specs of claims name, ``copies`` those on the host.
    """

    limits: tuple[LimitSeen, ...] = ()
    wrong: tuple[str, ...] = ()
    named: tuple[HookSeen, ...] = ()
    copies: tuple[HookSeen, ...] = ()
    sockets: HookSocketsSeen = field(default_factory=lambda: HookSocketsSeen("", is_there=False))


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node at one moment.

    ``looked`` are the places where the NVIDIA driver was looked for, with what was found there.
    ``device_nodes`` are the character devices below ``/dev`` of the driver root, by their paths.
    ``gpus_on_bus`` is how many GPUs of NVIDIA sysfs shows, whatever their kernel driver.
    ``kernel_driver`` is the version of the loaded kernel module, None without one. ``cgroups`` is the
    version of control groups. ``journal`` are the entries by claim, or what is wrong with the file;
    ``put_aside`` the files that a plugin could not read. ``plugins`` says of each plugin's socket what it
    answers. ``in_containers`` are the CDI devices of this driver that the kubelet knows in containers.
    ``kernel`` is what matters to virtual machines, ``memory`` what holds containers to their memory.
    """

    places: Places
    boot_id: str
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
    sharing: tuple[SharingSeen, ...] | Unread
    daemons: tuple[MpsState, ...] | Unread
    plugins: Mapping[str, str]
    registrations: tuple[str, ...]
    in_containers: frozenset[str] | Unread
    kernel: KernelSeen
    fabric: FabricSeen = field(default_factory=lambda: FabricSeen(None))
    memory: MemorySeen = field(default_factory=MemorySeen)


@dataclass(frozen=True, slots=True)
class LicenseClient:
    """What is installed and configured for vGPU licenses below the driver root, or on the host.

    ``programs`` are the names of programs that only NVIDIA's vGPU software has. ``servers`` are where
    licenses come from: files with a token, and whether gridd.conf names a server.
    """

    programs: frozenset[str] = frozenset()
    servers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelSeen:
    """What the kernel says.

    ``offers`` is what the node is to offer to virtual machines, as far as anybody said so or it can be seen.
    ``vgpus`` are the functions that say of themselves, in their config space, that they are vGPUs. ``iommus``
    are the IOMMUs that the kernel drives; ``asked_iommu`` is whether its command line asks for one.
    ``loaded`` are modules of VFIO that are there, ``installed`` those that could be loaded, None where no
    folder of modules is seen. The last two are parameters of VFIO, None where its module is not loaded.
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
        """The GPUs that are no virtual functions."""
        return self.pci.physical
