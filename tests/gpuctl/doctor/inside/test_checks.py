"""Each check of a node finds what it is for, and is content with a node on which all is well."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from driver.hardware.functions import IommuGroup, PciView
from driver.hardware.gpu import Inventory, Problem, UnreadGpu
from driver.hardware.vgpu import VgpuLicense
from driver.nvml.pci_address import PciAddress
from driver.roots.probe import ProbedPlace
from gpuctl.cli.unread import Unread
from gpuctl.doctor.check import Finding
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
from kubeletplugin.kubelet.wire.mps_daemon import MpsState
from tests.gpuctl.doctor.nodes import (
    BOOT,
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

CHECKS = {check.name: check for check in INSIDE}
WELL = well_node()
GONE = Unread("it does not exist")


def look(name: str, **broken: Any) -> Finding:
    """What a check finds where these parts of the node are other than on a well one."""
    return CHECKS[name].look(dataclasses.replace(well_node(), **broken))


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
OF_GUESTS = ("vgpu-license", "license-client")
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


def guest(gridd: bool = True, **fields: Any) -> dict[str, Any]:
    """A vGPU guest whose kernel, or whose license client, is otherwise."""
    held = GUEST["kernel"].licenses
    programs = held.programs if gridd else frozenset()
    licenses = dataclasses.replace(held, programs=programs, **fields)
    return {**GUEST, "kernel": dataclasses.replace(GUEST["kernel"], licenses=licenses)}


def licensed(licensed: bool, expires: datetime | None = None) -> dict[str, Any]:
    """A vGPU guest with another license."""
    found = GUEST["inventory"]
    held = VgpuLicense("NVIDIA Virtual Compute Server", licensed, expires)
    gpu = dataclasses.replace(found.gpus[0], vgpu_license=held)
    return {**GUEST, "inventory": dataclasses.replace(found, gpus=(gpu,))}


LIMITED = limited_parts()
OF_LIMITS = ("memory-limits", "memory-hook", "memory-sockets", "memory-held")
"""The checks that have nothing to look at but where the NVIDIA driver holds a claim to its memory."""


def limited(**fields: Any) -> dict[str, Any]:
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

BROKEN: list[tuple[str, dict[str, Any], str, str]] = [
    ("driver-root", {"driver_files": Unread("no NVIDIA driver library")}, "fail", "no NVIDIA driver library"),
    ("driver-root", {"driver_files": files(binaries=())}, "warn", "has no nvidia-smi"),
    ("nvml", {"inventory": Unread("NVML's library cannot be loaded")}, "fail", "cannot be loaded"),
    ("nvml", {"inventory": Inventory(driver_version=VERSION)}, "warn", "reports no GPU"),
    ("nvml", {"inventory": gpus(problems=(HANGS,))}, "warn", "no answer in 5 s"),
    ("nvml", {"inventory": Inventory(unread=(UnreadGpu(None, ()),))}, "warn", "never identified"),
    ("same-driver", {"kernel_driver": "575.57.08"}, "fail", "the kernel module is 575.57.08"),
    ("same-driver", {"kernel_driver": None}, "skipped", "sysfs does not show"),
    ("device-nodes", {"device_nodes": WELL.device_nodes - {"/dev/nvidia3"}}, "fail", "/dev/nvidia3"),
    ("device-nodes", {"device_nodes": WELL.device_nodes - {"/dev/nvidia-uvm"}}, "fail", "/dev/nvidia-uvm"),
    ("device-nodes", {"inventory": GONE}, "skipped", "not known"),
    ("fabric", {"fabric": FabricSeen(None)}, "skipped", "no fabric manager with a shared fabric"),
    ("fabric", {"fabric": FabricSeen(None, frozenset({3}))}, "fail", "no fabric manager listens"),
    ("fabric", {"fabric": FabricSeen(GONE)}, "fail", "cannot be asked"),
    ("fabric", {"fabric": FabricSeen(partitions(3), frozenset({2, 3}))}, "fail", "partition 2"),
    ("fabric", {"fabric": FabricSeen(partitions(2, 3), frozenset({3}))}, "warn", "partition 2"),
    ("driver-edition", {**guest(gridd=False), "inventory": GONE}, "fail", "the data center driver"),
    ("driver-edition", {**guest(), "inventory": GONE}, "fail", "does not support 1 vGPU"),
    ("driver-edition", {**guest(), "inventory": GONE, "driver_files": GONE}, "fail", "no NVIDIA driver"),
    ("driver-edition", guest(gridd=False), "warn", "nvidia-gridd, which gets licenses, was not found"),
    (
        "driver-edition",
        {"kernel": kernel(licenses=MANAGER, offers=frozenset({"passthrough"}))},
        "warn",
        "containers have no CUDA",
    ),
    (
        "one-driver",
        {
            "looked": (
                ProbedPlace("driver container", "/run/nvidia/driver", VERSION, "x"),
                ProbedPlace("host", "/", VERSION),
            )
        },
        "warn",
        f"/run/nvidia/driver (driver container): {VERSION}",
    ),
    ("vgpu-license", licensed(False), "fail", "1 vGPU without a license"),
    ("vgpu-license", licensed(True, SOON), "warn", "expire within four hours"),
    ("vgpu-license", {}, "skipped", "no GPU of this node is a vGPU"),
    ("license-client", guest(servers=()), "warn", "is not configured"),
    ("license-client", {}, "skipped", "no GPU of this node is a vGPU"),
    ("memory-limits", {}, "skipped", "no whole GPU is shared; driver 580.95.05 is older than R615"),
    ("memory-limits", {**LIMITED, "cgroups": 1}, "fail", "control groups of version 1"),
    ("memory-limits", {**LIMITED, "kernel_driver": VERSION}, "fail", "driver 580.95.05 is older than R615"),
    (
        "memory-limits",
        {**LIMITED, "journal": ACCOUNTED, "cgroups": 1},
        "warn",
        "without an enforced memory limit",
    ),
    ("memory-limits", {"journal": ACCOUNTED, "kernel_driver": None}, "warn", "older than R615"),
    ("memory-hook", {}, "skipped", "no claim has a limit"),
    ("memory-hook", limited(named=(HookSeen(HOOK, "it does not exist"),)), "fail", "it does not exist"),
    ("memory-hook", limited(named=(), copies=()), "fail", "the host has no gpu-memory-hook"),
    ("memory-hook", limited(named=(), copies=(HookSeen(HOOK, "noexec"),)), "warn", "noexec"),
    ("memory-hook", limited(named=(HookSeen(HOOK, is_own=False),)), "warn", "of another version"),
    ("memory-sockets", {}, "skipped", "no claim has a limit"),
    ("memory-sockets", limited(sockets=HookSocketsSeen("/s", (), (PRIVATE,))), "fail", "mode 0755"),
    ("memory-sockets", limited(sockets=HookSocketsSeen("/s", (("a.sock", False),))), "fail", "a.sock"),
    ("memory-sockets", limited(sockets=HookSocketsSeen("/s", is_there=False)), "fail", "cannot start"),
    ("memory-held", {}, "skipped", "no claim has a limit"),
    ("memory-held", limited(wrong=("a.json: it is not a ledger",)), "fail", "it is not a ledger"),
    ("memory-held", limited(limits=(limit(told_bytes=6 << 30),)), "fail", "its limit is 6442450944 bytes"),
    ("memory-held", limited(limits=(limit(), limit(), limit())), "fail", "the claim only 10737418240"),
    ("memory-held", limited(limits=(NO_LIMIT,)), "fail", "team/train-0/main"),
    ("memory-held", limited(limits=(NOT_TOLD,)), "warn", "it hangs"),
    ("iommu", {"kernel": without_groups()}, "fail", "though the kernel drives an IOMMU"),
    ("iommu", {"kernel": without_groups(iommus=())}, "fail", "there is no IOMMU"),
    ("iommu", {"kernel": without_groups(offers=frozenset())}, "skipped", "containers need no IOMMU"),
    ("iommu-groups", {"kernel": in_one_group()}, "warn", "0000:1b:00.0, 0000:43:00.0"),
    (
        "vfio-modules",
        {"kernel": kernel(loaded=frozenset({"vfio"}), installed=frozenset({"vfio_iommu_type1"}))},
        "fail",
        "vfio_pci",
    ),
    (
        "vfio-modules",
        {"kernel": kernel(loaded=frozenset(), installed=None)},
        "skipped",
        "cannot be seen from here",
    ),
    ("vfio-modules", {"kernel": kernel(offers=frozenset())}, "skipped", "offers nothing"),
    (
        "iommufd",
        {"kernel": kernel(pci=dataclasses.replace(well_kernel().pci, has_iommufd=False))},
        "warn",
        "IOMMUFD is asked for",
    ),
    ("vfio-safety", {"kernel": kernel(without_iommu=True)}, "fail", "enable_unsafe_noiommu_mode"),
    ("vfio-safety", {"kernel": kernel(unsafe_interrupts=True)}, "warn", "allow_unsafe_interrupts"),
    ("vfio-safety", {"kernel": kernel(without_iommu=None)}, "skipped", "not loaded"),
    ("virtual-functions", {"kernel": without_virtual_functions()}, "fail", "0000:1b:00.0"),
    ("virtual-functions", {"kernel": kernel(offers=frozenset({"passthrough"}))}, "skipped", "no vGPUs"),
    ("cgroups", {"cgroups": 1}, "warn", "version 1"),
    ("cgroups", {"cgroups": None}, "skipped", "no control groups found"),
    ("runtime-cdi", {"runtimes": containerd(cdi=False, since_2=True)}, "fail", "CDI is off"),
    ("runtime-cdi", {"runtimes": containerd()}, "warn", "does not say"),
    ("runtime-cdi", {"runtimes": containerd(wrong="no TOML")}, "warn", "no TOML"),
    ("runtime-cdi", {"runtimes": ()}, "skipped", "no configuration"),
    ("cdi-folder", {"cdi_writable": False}, "fail", "cannot be written to"),
    ("cdi-folder", {"cdi_writable": Unread("there is no folder /x")}, "fail", "there is no folder /x"),
    ("cdi-folder", {"runtimes": containerd(cdi=True, folders=("/etc/cdi",))}, "fail", "does not read"),
    ("plugin", {"plugins": {}}, "fail", "no plugin has a socket"),
    ("plugin", {"plugins": {SOCKET: NOT_REGISTERED}}, "fail", "it is not registered with the kubelet"),
    ("plugin", {"plugins": {SOCKET: SERVES, "/old.sock": "nobody answers"}}, "warn", "/old.sock: nobody"),
    ("registration", {"registrations": ()}, "fail", "no registration socket"),
    (
        "journal",
        {"journal": {UID: Unread("the checksum does not match")}},
        "fail",
        "the checksum does not match",
    ),
    ("journal", {"put_aside": ("old-1234",)}, "warn", "old-1234"),
    ("journal", {"journal": {UID: entry("preparing")}}, "warn", "team/train (UID"),
    ("journal", {"journal": GONE}, "skipped", "nothing has been prepared yet"),
    ("cdi-specs", {"specs": ()}, "fail", "it has no CDI spec"),
    ("cdi-specs", {"journal": {}}, "fail", "a CDI spec without an entry"),
    ("cdi-specs", {"specs": (SpecSeen(UID, ("other",)),)}, "fail", f"lacks {CDI_NAME}"),
    ("cdi-specs", {"specs": (SpecSeen(UID, (CDI_NAME,), ("/dev/nvidia0",)),)}, "fail", "has no /dev/nvidia0"),
    ("cdi-specs", {"specs": (SpecSeen(UID, wrong="it is not a CDI spec"),)}, "fail", "it is not a CDI spec"),
    ("cdi-specs", {"specs": GONE}, "skipped", "does not exist"),
    ("prepared-devices", {"inventory": gpus(uuid="GPU-another")}, "fail", "another GPU is at"),
    ("prepared-devices", {"inventory": Inventory()}, "fail", "there is no GPU at"),
    (
        "prepared-devices",
        {"journal": {UID: entry(record={"uuid": "MIG-gone"})}},
        "fail",
        "the partition MIG-gone does not exist",
    ),
    ("prepared-devices", {"inventory": GONE}, "skipped", "does not exist"),
    ("containers", {"in_containers": frozenset({"somebody-else"})}, "fail", "somebody-else"),
    ("containers", {"in_containers": GONE}, "skipped", "does not exist"),
    ("mps", {"daemons": ()}, "fail", "gpu-0000-df-00-0: it has no daemon"),
    ("mps", {"daemons": GONE}, "fail", "shared by MPS, but it does not exist"),
    ("mps", {"daemons": GONE, "sharing": ()}, "skipped", "nothing is shared by MPS"),
    ("mps", {"sharing": ()}, "fail", "a daemon, but nothing is shared"),
    ("mps", {"sharing": (SharingSeen("gpu-x", wrong="it is not a record"),)}, "fail", "it is not a record"),
    (
        "mps",
        {"daemons": (MpsState("gpu-0000-df-00-0", running=False, message="it died"),)},
        "fail",
        "gpu-0000-df-00-0: it died",
    ),
]


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_is_content_where_all_is_well(name: str) -> None:
    found = look(name, **(GUEST if name in OF_GUESTS else LIMITED if name in OF_LIMITS else {}))

    assert (found.status, found.way_out) == ("ok", ""), found


@pytest.mark.parametrize(
    ("name", "broken", "status", "says"), BROKEN, ids=[f"{one[0]}-{one[2]}-{one[3]}" for one in BROKEN]
)
def test_a_check_finds_what_it_is_for(name: str, broken: dict[str, Any], status: str, says: str) -> None:
    found = look(name, **broken)

    assert found.status == status, found
    assert says in " ".join((found.message, *found.details))
    assert found.way_out or status == "skipped"


def test_every_check_is_broken_by_a_test() -> None:
    assert {name for name, _, status, _ in BROKEN if status in ("warn", "fail")} == CHECKS.keys()


def test_where_the_iommu_is_asked_for_the_firmware_is_meant() -> None:
    asked = look("iommu", kernel=without_groups(iommus=(), asked_iommu=True))
    not_asked = look("iommu", kernel=without_groups(iommus=(), asked_iommu=False))

    assert "firmware" in asked.way_out
    assert "intel_iommu=on" not in asked.way_out
    assert "intel_iommu=on" in not_asked.way_out


def test_modules_that_can_be_loaded_need_not_be() -> None:
    assert look("vfio-modules", kernel=kernel(loaded=frozenset())).status == "ok"


def test_where_nothing_is_passed_through_groups_may_have_several_boards() -> None:
    assert look("iommu-groups", kernel=in_one_group(offers=frozenset())).status == "ok"


def test_a_group_with_the_other_functions_of_its_gpu_alone_is_well() -> None:
    view = well_kernel().pci
    gpu = view.functions[0]
    audio = dataclasses.replace(gpu, pci=PciAddress.parse(f"{gpu.pci[:-1]}1"), class_code=0x040300)
    group = IommuGroup(0, (gpu, audio))

    found = look("iommu-groups", kernel=kernel(pci=dataclasses.replace(view, groups=(group,))))

    assert (found.status, found.details) == ("ok", ())


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({}, "the data center driver"),
        (GUEST, "the vGPU guest driver, for 1 vGPU"),
        ({"kernel": kernel(licenses=LicenseClient(frozenset({"nvidia-gridd"})))}, "on passed-through GPUs"),
        ({"kernel": kernel(licenses=MANAGER)}, "the vGPU manager, for 8 GPUs"),
    ],
    ids=["data center", "guest", "guest driver elsewhere", "host"],
)
def test_each_edition_of_the_driver_is_well_where_it_belongs(parts: dict[str, Any], says: str) -> None:
    found = look("driver-edition", **parts)

    assert found.status == "ok"
    assert says in found.message


def test_a_license_that_is_renewed_in_time_is_well() -> None:
    assert look("vgpu-license", **licensed(True, LATE)).status == "ok"


def test_a_license_that_is_missing_is_told_by_its_own_check_alone() -> None:
    problem = Problem("nvmlDeviceGetGridLicensableFeatures_v4", "unlicensed", "no license")

    assert look("nvml", inventory=gpus(problems=(problem,))).status == "ok"


def test_what_an_earlier_boot_has_left_means_nothing() -> None:
    old = {UID: entry(boot="boot-0", uuid="GPU-another")}

    assert look("prepared-devices", journal=old).status == "ok"
    assert (
        look("mps", sharing=(SharingSeen("gpu-x", daemon=True, boot_id="boot-0"),), daemons=()).status == "ok"
    )


def test_a_tombstone_needs_no_spec_and_no_hardware() -> None:
    ended = {UID: entry("released", uuid="GPU-another")}

    assert look("prepared-devices", journal=ended).status == "ok"
    assert look("cdi-specs", journal=ended, specs=()).status == "ok"
    assert look("journal", journal=ended).status == "ok"


def test_var_run_is_run() -> None:
    told = containerd(cdi=True, folders=("/run/cdi/",))

    assert look("cdi-folder", runtimes=told).status == "ok"
    elsewhere = dataclasses.replace(WELL.places, cdi_dir=Path("/srv/cdi"))
    assert look("cdi-folder", runtimes=told, places=elsewhere).status == "fail"


def test_a_node_without_a_gpu_needs_no_driver() -> None:
    nothing = {"gpus_on_bus": 0, "driver_files": GONE, "inventory": GONE, "device_nodes": frozenset()}

    found = {name: look(name, **nothing) for name in ("driver-root", "nvml", "device-nodes", "same-driver")}

    assert {name: one.status for name, one in found.items()} == dict.fromkeys(found, "skipped")
    assert "PCI bus" in found["driver-root"].message


def test_containerd_2_has_cdi_on_without_being_told() -> None:
    assert look("runtime-cdi", runtimes=containerd(since_2=True)).status == "ok"


def test_a_record_of_this_boot_is_compared() -> None:
    twice = (*WELL.sharing, SharingSeen("gpu-y", daemon=True, boot_id=BOOT))

    assert "gpu-y: it has no daemon" in look("mps", sharing=twice).details
