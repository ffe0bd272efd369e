"""Each check of a node finds what it is for, and is content with a node on which all is well."""

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from driver.hardware.gpu import UnreadGpu
from driver.hardware.vgpu import VgpuLicense
from driver.roots.probe import ProbedPlace
from gpuctl.doctor.inside.checks import INSIDE
from gpuctl.doctor.inside.seen import (
    FabricSeen,
    HookSeen,
    HookSocketsSeen,
    KernelSeen,
    LicenseClient,
    RuntimeConfig,
    SharingSeen,
    SpecSeen,
)
from gpuctl.doctor.inside.sockets import NOT_REGISTERED, SERVES
from kubeletplugin.devices.host.imex import ImexNotReady
from tests.clusters import Object, Unread
from tests.gpuctl.approved import approve
from tests.gpuctl.doctor.nodes import (
    CONFIG,
    HOOK,
    UID,
    VERSION,
    entry,
    guest_parts,
    held,
    inventory,
    limit,
    limited_parts,
    memory_seen,
    partitions,
    shared,
    well_kernel,
    well_node,
)
from tests.gpuctl.doctor.said import blamed, said
from tests.gpus import Inventory, IommuGroup, PciAddress, PciView, Problem
from tests.plugin import MpsState

CHECKS = {check.name: check for check in INSIDE}
WELL = well_node()
GONE = Unread("it does not exist")


def files(**fields: Any) -> Any:
    assert not isinstance(WELL.driver_files, Unread)
    return dataclasses.replace(WELL.driver_files, **fields)


def gpus(**fields: Any) -> Inventory:
    """The GPUs, of which the first is otherwise."""
    first, *others = inventory().gpus
    return dataclasses.replace(inventory(), gpus=(dataclasses.replace(first, **fields), *others))


def containerd(**fields: Any) -> tuple[RuntimeConfig]:
    return (RuntimeConfig(CONFIG, "containerd", **fields),)


GUEST = guest_parts()
OF_GUESTS = ("vgpu-license",)
"""The checks that have nothing to look at but in a vGPU guest."""


def kernel(**fields: Any) -> KernelSeen:
    """The kernel of the well node, of which some is otherwise."""
    return dataclasses.replace(well_kernel(), **fields)


def without_groups(**fields: Any) -> KernelSeen:
    """A kernel that has the GPUs in no IOMMU group."""
    gpus = tuple(dataclasses.replace(one, iommu_group=None) for one in well_kernel().pci.functions)
    return kernel(pci=PciView(gpus), **fields)


def without_virtual_functions() -> KernelSeen:
    view = well_kernel().pci
    first, *others = view.functions
    return kernel(pci=dataclasses.replace(view, functions=(dataclasses.replace(first, virtual=()), *others)))


def in_one_group(**fields: Any) -> KernelSeen:
    """A kernel that has two GPUs in one group."""
    view = well_kernel().pci
    both = IommuGroup(0, view.functions[:2])
    return kernel(pci=dataclasses.replace(view, groups=(both, *view.groups[2:])), **fields)


def with_audio() -> KernelSeen:
    """A kernel that has a GPU in a group with another function of its board."""
    view = well_kernel().pci
    gpu = view.functions[0]
    audio = dataclasses.replace(gpu, pci=PciAddress.parse(f"{gpu.pci[:-1]}1"), class_code=0x040300)
    return kernel(pci=dataclasses.replace(view, groups=(IommuGroup(0, (gpu, audio)),)))


def guest(gridd: bool = True, **fields: Any) -> Object:
    """A vGPU guest whose kernel, or whose license client, is otherwise."""
    held = GUEST["kernel"].licenses
    programs = held.programs if gridd else frozenset()
    licenses = dataclasses.replace(held, programs=programs, **fields)
    return {**GUEST, "kernel": dataclasses.replace(GUEST["kernel"], licenses=licenses)}


def licensed(licensed: bool, expires: datetime | None = None) -> Object:
    """A vGPU guest with another license."""
    found = GUEST["inventory"]
    held = VgpuLicense("NVIDIA Virtual Compute Server", licensed, expires)
    gpu = dataclasses.replace(found.gpus[0], vgpu_license=held)
    return {**GUEST, "inventory": dataclasses.replace(found, gpus=(gpu,))}


def in_rack(*cliques: str, **fields: Any) -> Object:
    """A node whose GPUs are in these NVLink cliques, one after the other; an empty one is none."""
    found = inventory()
    gpus = [
        dataclasses.replace(gpu, fabric_clique=clique or None)
        for gpu, clique in zip(found.gpus, cliques, strict=False)
    ]
    return {"inventory": dataclasses.replace(found, gpus=(*gpus,)), **fields}


NO_IMEX = ImexNotReady("nvidia-imex of this node is not ready: INITIALIZING", "start it")

LIMITED = limited_parts()
OF_LIMITS = ("memory-limits", "memory-hook", "memory-sockets", "memory-held")
"""The checks that have nothing to look at but where the NVIDIA driver holds a claim to its memory."""


def limited(**fields: Any) -> Object:
    """A node where what holds a claim to its memory is otherwise."""
    return {**LIMITED, "memory": memory_seen(**fields)}


NO_LIMIT = dataclasses.replace(limit(), in_nvml=None)
NOT_TOLD = dataclasses.replace(limit(), in_nvml=Unread("it hangs"))
ACCOUNTED = {UID: shared(limited=False)}
PRIVATE = "/var/lib/kubelet/plugins/gpu.nvidia.com/memory/sockets: mode 0755"

MANAGER = LicenseClient(frozenset({"nvidia-vgpu-mgr", "nvidia-vgpud"}))
SOON = datetime.now(UTC) + timedelta(hours=1)
LATE = datetime.now(UTC) + timedelta(hours=20)

HANGS = Problem("nvmlDeviceGetUUID", "hung", "no answer in 5 s")
SOCKET = "/var/lib/kubelet/plugins/gpu.nvidia.com/dra.sock"
CDI_NAME = held().cdi_device

UNLICENSED = Problem("nvmlDeviceGetGridLicensableFeatures_v4", "unlicensed", "no license")
ENDED = {UID: entry("released", uuid="GPU-another")}
OTHER_PLACE = ProbedPlace("driver container", "/run/nvidia/driver", VERSION, "x")
ELSEWHERE = dataclasses.replace(WELL.places, cdi_dir=Path("/srv/cdi"))
WITHOUT_GPU = {"gpus_on_bus": 0, "driver_files": GONE, "inventory": GONE, "device_nodes": frozenset()}
ROWS: list[tuple[str, Object]] = [
    *((name, {}) for name in CHECKS),
    *((name, GUEST) for name in OF_GUESTS),
    *((name, LIMITED) for name in OF_LIMITS),
    ("driver-root", {"driver_files": Unread("no NVIDIA driver library")}),
    ("driver-root", {"driver_files": files(binaries=())}),
    ("nvml", {"inventory": Unread("NVML's library cannot be loaded")}),
    ("nvml", {"inventory": Inventory(driver_version=VERSION)}),
    ("nvml", {"inventory": gpus(problems=(HANGS,))}),
    ("nvml", {"inventory": Inventory(unread=(UnreadGpu(None, ()),))}),
    ("same-driver", {"kernel_driver": "575.57.08"}),
    ("same-driver", {"kernel_driver": None}),
    ("device-nodes", {"device_nodes": WELL.device_nodes - {"/dev/nvidia3"}}),
    ("device-nodes", {"device_nodes": WELL.device_nodes - {"/dev/nvidia-uvm"}}),
    ("fabric", {"fabric": FabricSeen(None)}),
    ("fabric", {"fabric": FabricSeen(partitions(3), frozenset({2, 3}))}),
    ("fabric", {"fabric": FabricSeen(partitions(2, 3), frozenset({3}))}),
    ("imex", in_rack("rack.1", "rack.1")),
    ("imex", in_rack("rack.1", "rack.1", no_channels=NO_IMEX)),
    ("imex", in_rack("rack.1", "rack.2", "")),
    ("driver-edition", {**guest(gridd=False), "inventory": GONE}),
    ("driver-edition", {**guest(), "inventory": GONE}),
    ("driver-edition", guest(gridd=False)),
    ("driver-edition", {"kernel": kernel(licenses=MANAGER, offers=frozenset({"passthrough"}))}),
    ("driver-root", {"looked": (OTHER_PLACE, *WELL.looked[1:])}),
    ("vgpu-license", licensed(False)),
    ("vgpu-license", licensed(True, SOON)),
    ("vgpu-license", guest(servers=())),
    ("memory-limits", {**LIMITED, "cgroups": 1}),
    ("memory-limits", {**LIMITED, "kernel_driver": VERSION}),
    ("memory-limits", {**LIMITED, "journal": ACCOUNTED, "cgroups": 1}),
    ("memory-limits", {"journal": ACCOUNTED, "kernel_driver": None}),
    ("memory-hook", limited(named=(HookSeen(HOOK, "it does not exist"),))),
    ("memory-hook", limited(named=(), copies=())),
    ("memory-hook", limited(named=(), copies=(HookSeen(HOOK, "noexec"),))),
    ("memory-hook", limited(named=(HookSeen(HOOK, is_own=False),))),
    ("memory-sockets", limited(sockets=HookSocketsSeen("/s", (), (PRIVATE,)))),
    ("memory-sockets", limited(sockets=HookSocketsSeen("/s", (("a.sock", False),)))),
    ("memory-sockets", limited(sockets=HookSocketsSeen("/s", is_there=False))),
    ("memory-held", limited(wrong=("a.json: it is not a ledger",))),
    ("memory-held", limited(limits=(limit(told_bytes=6 << 30),))),
    ("memory-held", limited(limits=(limit(), limit(), limit()))),
    ("memory-held", limited(limits=(NO_LIMIT,))),
    ("memory-held", limited(limits=(NOT_TOLD,))),
    ("iommu", {"kernel": without_groups()}),
    ("iommu", {"kernel": without_groups(iommus=())}),
    ("iommu", {"kernel": without_groups(offers=frozenset())}),
    ("iommu", {"kernel": in_one_group()}),
    (
        "vfio-modules",
        {"kernel": kernel(loaded=frozenset({"vfio"}), installed=frozenset({"vfio_iommu_type1"}))},
    ),
    ("vfio-modules", {"kernel": kernel(loaded=frozenset(), installed=None)}),
    ("vfio-modules", {"kernel": kernel(offers=frozenset())}),
    ("vfio-modules", {"kernel": kernel(pci=dataclasses.replace(well_kernel().pci, has_iommufd=False))}),
    ("vfio-safety", {"kernel": kernel(without_iommu=True)}),
    ("vfio-safety", {"kernel": kernel(unsafe_interrupts=True)}),
    ("virtual-functions", {"kernel": without_virtual_functions()}),
    ("cgroups", {"cgroups": 1}),
    ("cgroups", {"cgroups": None}),
    ("runtime-cdi", {"runtimes": containerd(cdi=False, since_2=True)}),
    ("runtime-cdi", {"runtimes": containerd()}),
    ("runtime-cdi", {"runtimes": containerd(wrong="no TOML")}),
    ("runtime-cdi", {"runtimes": ()}),
    ("cdi-folder", {"cdi_writable": False}),
    ("cdi-folder", {"cdi_writable": Unread("there is no folder /x")}),
    ("cdi-folder", {"runtimes": containerd(cdi=True, folders=("/etc/cdi",))}),
    ("plugin", {"plugins": {}}),
    ("plugin", {"plugins": {SOCKET: NOT_REGISTERED}}),
    ("plugin", {"plugins": {SOCKET: SERVES, "/old.sock": "nobody answers"}}),
    ("plugin", {"registrations": ()}),
    ("journal", {"journal": {UID: Unread("the checksum does not match")}}),
    ("journal", {"put_aside": ("old-1234",)}),
    ("journal", {"journal": {UID: entry("preparing")}}),
    ("cdi-specs", {"specs": ()}),
    ("cdi-specs", {"journal": {}}),
    ("cdi-specs", {"specs": (SpecSeen(UID, ("other",)),)}),
    ("cdi-specs", {"specs": (SpecSeen(UID, (CDI_NAME,), ("/dev/nvidia0",)),)}),
    ("cdi-specs", {"specs": (SpecSeen(UID, wrong="it is not a CDI spec"),)}),
    ("prepared-devices", {"inventory": gpus(uuid="GPU-another")}),
    ("prepared-devices", {"inventory": Inventory()}),
    ("prepared-devices", {"journal": {UID: entry(record={"uuid": "MIG-gone"})}}),
    ("containers", {"in_containers": frozenset({"somebody-else"})}),
    ("mps", {"daemons": ()}),
    ("mps", {"daemons": GONE}),
    ("mps", {"sharing": ()}),
    ("mps", {"sharing": (SharingSeen("gpu-x", wrong="it is not a record"),)}),
    ("mps", {"daemons": (MpsState("gpu-0000-df-00-0", running=False, message="it died"),)}),
    ("memory-limits", {**LIMITED, "journal": ACCOUNTED}),
    ("memory-held", limited(limits=(limit(told_bytes=4 << 30),))),
    ("iommu", {"kernel": without_groups(iommus=(), asked_iommu=False)}),
    ("vfio-modules", {"kernel": kernel(loaded=frozenset())}),
    ("iommu", {"kernel": with_audio()}),
    ("driver-edition", GUEST),
    ("driver-edition", {"kernel": kernel(licenses=LicenseClient(frozenset({"nvidia-gridd"})))}),
    ("driver-edition", {"kernel": kernel(licenses=MANAGER)}),
    ("vgpu-license", licensed(True, LATE)),
    ("nvml", {"inventory": gpus(problems=(UNLICENSED,))}),
    ("mps", {"sharing": (*WELL.sharing, SharingSeen("gpu-y", daemon=True))}),
    *((name, {"journal": ENDED, "specs": ()}) for name in ("journal", "cdi-specs", "prepared-devices")),
    ("cdi-folder", {"runtimes": containerd(cdi=True, folders=("/run/cdi/",))}),
    ("cdi-folder", {"runtimes": containerd(cdi=True, folders=("/run/cdi/",)), "places": ELSEWHERE}),
    *((name, WITHOUT_GPU) for name in ("driver-root", "nvml", "device-nodes", "same-driver")),
    ("runtime-cdi", {"runtimes": containerd(since_2=True)}),
]


def test_the_checks_say_what_is_wrong() -> None:
    text = said(CHECKS, WELL, ROWS)

    approve("doctor/inside", text)
    assert blamed(text) == CHECKS.keys()
