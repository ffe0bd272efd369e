"""A node as the doctor sees it, in which all is well, for tests to break."""

import dataclasses
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from driver.fabric.api import FabricPartition
from driver.roots.probe import ProbedPlace
from gpuctl.doctor.inside.places import Places, read_places
from gpuctl.doctor.inside.seen import (
    TO_MACHINES,
    FabricSeen,
    HookSeen,
    HookSocketsSeen,
    KernelSeen,
    LicenseClient,
    LimitSeen,
    MemorySeen,
    NodeSeen,
    RuntimeConfig,
    SharingSeen,
    SpecSeen,
)
from gpuctl.doctor.inside.sockets import SERVES
from kubeletplugin.devices.host.gpu_nodes import REQUIRED_CONTROL_NODES
from tests.clusters import Object
from tests.gpus import (
    Discovery,
    FakeMachine,
    Guard,
    Inventory,
    IommuGroup,
    MemoryLimits,
    PciAddress,
    PciFunction,
    PciView,
    build_sysfs,
)
from tests.plugin import DriverFiles, Entry, HeldDevice, MpsState, ShareRecord

UID = "11111111-2222-3333-4444-555555555555"
VERSION = "580.95.05"
GPU_CLASS = 0x030200
LIMITING = "615.10.01"
GIB = 1 << 30
HOOK = "/var/lib/kubelet/plugins/gpu.nvidia.com/hook/0.1.0-0123456789abcdef/gpu-memory-hook"
SOCKETS = "/var/lib/kubelet/plugins/gpu.nvidia.com/memory/sockets"
CONFIG = "/etc/containerd/config.toml"


@cache
def inventory() -> Inventory:
    """What NVML tells of eight H100."""
    return _seen(FakeMachine.open("hgx-h100"))


def _seen(machine: FakeMachine) -> Inventory:
    with TemporaryDirectory() as folder:
        guard = Guard()
        try:
            return Discovery(machine.nvml(), build_sysfs(Path(folder), machine), guard).snapshot()
        finally:
            guard.close()


def places() -> Places:
    """The places that a plugin without flags has."""
    return read_places({}, ())


def held(**fields: Any) -> HeldDevice:
    """The first GPU, held by a claim."""
    gpu = inventory().gpus[0]
    name = f"gpu-{str(gpu.pci).replace(':', '-').replace('.', '-')}"
    made = HeldDevice(
        "gpu", "node-a/gpu.nvidia.com", name, str(gpu.pci), gpu.uuid, f"{UID}-{name}", kind="whole"
    )
    return dataclasses.replace(made, **fields)


def entry(state: str = "prepared", **fields: Any) -> Entry:
    """The claim that holds the first GPU."""
    return Entry(UID, "team", "train", state, 1, (held(**fields),))  # type: ignore[arg-type] # a word of State


def partitions(*active: int) -> tuple[FabricPartition, ...]:
    """The fabric partitions of eight H100, of which these are active."""
    manager = FakeMachine.open("hgx-h100-shared-nvswitch").fabric.manager()
    for number in active:
        manager.activate(number)
    return manager.partitions()


def well_node() -> NodeSeen:
    """A node of eight H100 with one prepared claim and one GPU shared by MPS, in which nothing is wrong."""
    gpus = inventory()
    device = held()
    return NodeSeen(
        places=places(),
        looked=(
            ProbedPlace("driver container", "/run/nvidia/driver", reason="empty"),
            ProbedPlace("host", "/", VERSION),
        ),
        driver_files=DriverFiles(
            VERSION, ("/usr/lib/libcuda.so",), (), ("/usr/bin/nvidia-smi",), (), (), None
        ),
        kernel_driver=VERSION,
        gpus_on_bus=8,
        inventory=gpus,
        device_nodes=frozenset((*REQUIRED_CONTROL_NODES, *(f"/dev/nvidia{one.minor}" for one in gpus.gpus))),
        cgroups=2,
        runtimes=(RuntimeConfig(CONFIG, "containerd", cdi=True),),
        cdi_writable=True,
        journal={UID: entry()},
        put_aside=(),
        specs=(SpecSeen(UID, (device.cdi_device,)),),
        sharing=(SharingSeen("gpu-0000-df-00-0", daemon=True),),
        daemons=(MpsState("gpu-0000-df-00-0", running=True),),
        plugins={"/var/lib/kubelet/plugins/gpu.nvidia.com/dra.sock": SERVES},
        registrations=("/var/lib/kubelet/plugins_registry/gpu.nvidia.com-reg.sock",),
        in_containers=frozenset({device.cdi_device}),
        fabric=FabricSeen(partitions(3), frozenset({3})),
        kernel=well_kernel(),
    )


def well_kernel() -> KernelSeen:
    """The kernel of that node, which offers passthrough and vGPUs: each GPU in a group of its own."""
    functions = []
    for number, gpu in enumerate(inventory().gpus):
        virtual = PciAddress(gpu.pci.domain, gpu.pci.bus, gpu.pci.device, 4)
        functions.append(
            PciFunction(
                gpu.pci, 0x10DE, 0x2330, GPU_CLASS, "nvidia", number, virtual=(virtual,), total_virtual=16
            )
        )
    groups = tuple(IommuGroup(number, (one,)) for number, one in enumerate(functions))
    return KernelSeen(
        offers=frozenset(TO_MACHINES),
        pci=PciView(tuple(functions), groups, has_iommufd=True),
        iommus=("dmar0",),
        asked_iommu=True,
        loaded=frozenset({"vfio", "vfio_pci", "vfio_iommu_type1", "iommufd"}),
        installed=frozenset({"vfio", "vfio_pci", "vfio_iommu_type1", "iommufd"}),
        without_iommu=False,
        unsafe_interrupts=False,
    )


def guest_parts() -> Object:
    """What is other on a node that is a virtual machine with a licensed vGPU."""
    machine = FakeMachine.open("a30-vgpu-guest")
    found = _seen(machine)
    function = PciFunction(found.gpus[0].pci, 0x10DE, 0x20B7, GPU_CLASS, "nvidia")
    kernel = KernelSeen(
        pci=PciView((function,)),
        vgpus=frozenset({function.pci}),
        licenses=LicenseClient(
            frozenset({"nvidia-gridd"}), ("/etc/nvidia/ClientConfigToken/client_configuration_token.tok",)
        ),
    )
    return {"inventory": found, "kernel": kernel, "gpus_on_bus": 1}


def shared(*, limited: bool = True) -> Entry:
    """The claim that has a share of the first GPU, which the NVIDIA driver holds it to, or nobody does."""
    limit_bytes = 10 * GIB if limited else None
    return entry(
        share=ShareRecord("gpu", "TimeSlicing", memory_bytes=10 * GIB), memory_limit_bytes=limit_bytes
    )


def limit(hard_bytes: int = 5 * GIB, told_bytes: int | None = None) -> LimitSeen:
    """The part of one of its containers, which NVML holds to so much."""
    told = MemoryLimits(0, hard_bytes if told_bytes is None else told_bytes)
    return LimitSeen(UID, held().pci, "team/train-0/main", hard_bytes, told)


def memory_seen(**fields: Any) -> MemorySeen:
    """What holds two containers of that claim to their memory, of which some is otherwise."""
    hook = HookSeen(HOOK, is_own=True)
    sockets = HookSocketsSeen(SOCKETS, (("uid-1.sock", True),))
    seen = MemorySeen((limit(), limit()), (), (hook,), (hook,), sockets)
    return dataclasses.replace(seen, **fields)


def limited_parts() -> Object:
    """What is other on a node where the NVIDIA driver holds a claim to its memory."""
    return {"kernel_driver": LIMITING, "journal": {UID: shared()}, "memory": memory_seen()}
