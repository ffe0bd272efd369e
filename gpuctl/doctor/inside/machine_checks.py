"""Checks of a node that gives GPUs to virtual machines, or is one: IOMMU, VFIO, driver edition, licenses."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from driver.hardware.functions import PciView
from driver.hardware.gpu import Gpu
from gpuctl.cli.unread import Unread
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, skipped, warn
from gpuctl.doctor.inside.machine_files import GUEST_CLIENT, HOST_MANAGERS
from gpuctl.doctor.inside.seen import IOMMUFD, PASSTHROUGH, VGPU, KernelSeen, NodeSeen

_NOT_OFFERED = "this node offers nothing to virtual machines"
_VFIO = ("vfio", "vfio_pci", "vfio_iommu_type1")
_VGPU_VFIO = ("vfio",)

_ENDS_SOON = timedelta(hours=4)


@check
def _iommu(seen: NodeSeen) -> Finding:
    """The IOMMU groups of GPUs, and the other devices in them.

    Fails if GPUs are offered to virtual machines, but one is in no group: the IOMMU is off in the kernel or
    the firmware; warns if GPUs are passed through and a group has several boards.
    """
    kernel = seen.kernel
    require(kernel.gpus, "no NVIDIA GPU is on the node's PCI bus")
    # The kernel puts a function into a group only while an IOMMU translates for it.
    unguarded = [str(gpu.pci) for gpu in kernel.gpus if gpu.iommu_group is None]
    if unguarded:
        require(kernel.offers, f"{_NOT_OFFERED}, and containers need no IOMMU")
        return _no_iommu(kernel, unguarded)
    shared = list(_shared_groups(kernel.pci))
    if not shared or PASSTHROUGH not in kernel.offers:
        return ok(f"{counted(len(kernel.gpus), 'GPU')} in IOMMU groups", shared)
    return warn(
        f"{counted(len(shared), 'IOMMU group')} with several boards: a machine gets a whole group",
        "put the boards into slots behind ports with ACS, and enable ACS in the firmware (BIOS)",
        shared,
    )


def _no_iommu(kernel: KernelSeen, unguarded: list[str]) -> Finding:
    """What is wrong where GPUs are in no group."""
    if kernel.iommus:
        return fail(
            f"{counted(len(unguarded), 'GPU')} in no IOMMU group, although the kernel drives an IOMMU",
            "look for DMAR or IVRS in the kernel log; a virtual machine gets a virtual IOMMU from its host",
            unguarded,
        )
    way_out = (
        "the kernel's command line asks for it: enable VT-d, or AMD-Vi, in the firmware (BIOS)"
        if kernel.asked_iommu
        else "add intel_iommu=on to the kernel's command line (not needed on AMD), enable VT-d, or "
        "AMD-Vi, in the firmware (BIOS), and restart the node"
    )
    return fail("there is no IOMMU: no GPU can be given to a virtual machine", way_out, unguarded)


def _shared_groups(view: PciView) -> Iterator[str]:
    """The IOMMU groups with GPUs that have several boards."""
    # The members of a group can reach each other past the IOMMU, so VFIO gives away a whole group or nothing.
    # The functions of one board (GPU, audio, USB) share domain, bus and device number and may share a group.
    for group in view.groups:
        boards = {(one.pci.domain, one.pci.bus, one.pci.device) for one in group.gpus if one.physical is None}
        others = {(one.pci.domain, one.pci.bus, one.pci.device) for one in group.endpoints} - boards
        if boards and (len(boards) > 1 or others):
            yield f"group {group.number}: {', '.join(str(one.pci) for one in group.endpoints)}"


@check
def _vfio_modules(seen: NodeSeen) -> Finding:
    """The kernel modules of VFIO, and `/dev/iommu`.

    Fails if GPUs are offered to virtual machines, but a module is neither loaded nor installed; warns if
    `/dev/iommu` is missing and a class or a claim asks for it.
    """
    kernel = seen.kernel
    wanted = require(
        _VFIO if PASSTHROUGH in kernel.offers else _VGPU_VFIO if VGPU in kernel.offers else (), _NOT_OFFERED
    )
    missing = [name for name in wanted if name not in kernel.loaded]
    absent = [name for name in missing if kernel.installed is not None and name not in kernel.installed]
    if absent:
        return fail(
            f"{counted(len(absent), 'kernel module')} of VFIO missing",
            "install the kernel's extra modules (linux-modules-extra), or a kernel with CONFIG_VFIO_PCI",
            absent,
        )
    if IOMMUFD in kernel.offers and not kernel.pci.has_iommufd:
        return warn(
            "PreferIommuFD is asked for, but the kernel has no /dev/iommu: claims get groups instead",
            "load iommufd, on a kernel from 6.2 on with CONFIG_IOMMUFD and CONFIG_VFIO_DEVICE_CDEV",
        )
    if not missing:
        return ok(f"the modules {', '.join(wanted)} are loaded")
    if kernel.installed is None:
        return skipped(
            f"{', '.join(missing)} not loaded yet, and the kernel's modules cannot be seen from here",
            "run it on the node, or with --host-root",
        )
    return ok(f"{', '.join(missing)} can be loaded; the first claim does so")


@check
def _vfio_safety(seen: NodeSeen) -> Finding:
    """Parameters of VFIO that weaken its protection.

    Fails if VFIO runs without an IOMMU; warns if interrupts are not remapped.
    """
    kernel = seen.kernel
    if kernel.without_iommu:
        return fail(
            "VFIO works without an IOMMU (enable_unsafe_noiommu_mode): a GPU could write to all memory",
            "remove enable_unsafe_noiommu_mode from the options of the module vfio, and reload it",
        )
    if kernel.unsafe_interrupts:
        return warn(
            "VFIO takes interrupts that are not remapped (allow_unsafe_interrupts): a machine can forge them",
            "remove it from the options of vfio_iommu_type1, and enable interrupt remapping in the BIOS",
        )
    # A module that is not loaded shows no parameters in sysfs.
    if kernel.without_iommu is None:
        return skipped("VFIO is not loaded")
    return ok("VFIO hands out only devices behind an IOMMU")


@check
def _virtual_functions(seen: NodeSeen) -> Finding:
    """The SR-IOV virtual functions of GPUs.

    Fails if vGPUs are offered, but a GPU has none.
    """
    kernel = seen.kernel
    require(VGPU in kernel.offers, "this node offers no vGPUs")
    # sriov_totalvfs of sysfs, absent on GPUs that cannot do it: before Ampere.
    able = require(
        [gpu for gpu in kernel.gpus if gpu.total_virtual],
        "no GPU here has SR-IOV: their vGPUs are mediated devices of the GPU itself",
    )
    without = [str(gpu.pci) for gpu in able if not gpu.virtual]
    if without:
        return fail(
            f"{counted(len(without), 'GPU')} without virtual functions, which vGPUs need",
            "set virtualFunctions in the node configuration, or run /usr/lib/nvidia/sriov-manage -e ALL",
            without,
        )
    return ok(f"{counted(sum(len(gpu.virtual) for gpu in able), 'virtual function')} for vGPUs")


MACHINE_CHECKS = (_iommu, _vfio_modules, _vfio_safety, _virtual_functions)


@check
def _driver_edition(seen: NodeSeen) -> Finding:
    """Which NVIDIA driver is installed: for data centers, for vGPU guests (grid), or the vGPU manager.

    Fails if the node has vGPUs but not their guest driver, or a guest driver that does not support them;
    warns about a vGPU manager if no vGPUs are offered.
    """
    kernel = seen.kernel
    managers = sorted(kernel.licenses.programs & set(HOST_MANAGERS))
    vgpus = len(_vgpus(seen))
    if kernel.vgpus and not vgpus:
        return _guest_without_nvml(seen)
    if vgpus and GUEST_CLIENT not in kernel.licenses.programs:
        return warn(
            f"NVML reports {counted(vgpus, 'vGPU')}, but {GUEST_CLIENT}, which gets licenses, was not found",
            "install the vGPU guest driver with all of its parts (NVIDIA-Linux-x86_64-...-grid.run)",
        )
    if managers and VGPU not in kernel.offers:
        return warn(
            f"the vGPU manager is installed ({', '.join(managers)}): containers have no CUDA on this node",
            "offer vGPUs here (docs/configuration.md), or install the data center driver",
        )
    if managers:
        return ok(f"the vGPU manager, for {counted(len(kernel.gpus), 'GPU')}")
    if vgpus:
        return ok(f"the vGPU guest driver, for {counted(vgpus, 'vGPU')}")
    if GUEST_CLIENT in kernel.licenses.programs:
        return ok("the vGPU guest driver, which also works on passed-through GPUs")
    require(seen.driver_files)
    return ok("the data center driver, and no vGPU")


def _guest_without_nvml(seen: NodeSeen) -> Finding:
    """The kernel shows vGPUs that NVML does not: which driver is missing or wrong."""
    vgpus = [str(pci) for pci in sorted(seen.kernel.vgpus)]
    if isinstance(seen.driver_files, Unread):
        return fail(
            f"{counted(len(vgpus), 'vGPU')}, but no NVIDIA driver",
            "install the vGPU guest driver (NVIDIA-Linux-x86_64-...-grid.run) of the host's vGPU release",
            vgpus,
        )
    if GUEST_CLIENT in seen.kernel.licenses.programs:
        return fail(
            f"the vGPU guest driver {seen.driver_files.version} does not support "
            f"{counted(len(vgpus), 'vGPU')}",
            "install the guest driver of the release of the host's vGPU manager; see the kernel log",
            vgpus,
        )
    return fail(
        f"driver {seen.driver_files.version} is the data center driver, which does not support vGPUs",
        "remove it, and install the vGPU guest driver (NVIDIA-Linux-...-grid.run) of the host's release",
        vgpus,
    )


@check
def _vgpu_license(seen: NodeSeen) -> Finding:
    """The licenses of vGPUs: tokens in `/etc/nvidia/ClientConfigToken`, or the server in `gridd.conf`.

    Fails if one is missing; warns if one expires within four hours, or if its source is not configured.
    """
    if not seen.kernel.vgpus:
        require(seen.inventory)
    vgpus = _vgpus(seen)
    require(vgpus or seen.kernel.vgpus, "no GPU of this node is a vGPU")
    licenses = [(gpu, gpu.vgpu_license) for gpu in vgpus]
    missing = [
        f"{gpu.pci}: {held.product}" for gpu, held in licenses if held is not None and not held.licensed
    ]
    if missing:
        return fail(
            f"{counted(len(missing), 'vGPU')} without a license: CUDA stops working there after a while",
            "check that nvidia-gridd runs, and see its log (journalctl -u nvidia-gridd)",
            missing,
        )
    servers = seen.kernel.licenses.servers
    if not servers:
        return warn(
            "the source of the vGPUs' licenses is not configured",
            "put the client configuration token into /etc/nvidia/ClientConfigToken, or have the GPU "
            "operator do so (driver.licensingConfig); a legacy license server is ServerAddress in "
            "/etc/nvidia/gridd.conf",
        )
    # A lease is renewed while the license server answers, so one that ends soon may only be a short one.
    now = datetime.now(UTC)
    ending = [
        f"{gpu.pci}: until {held.expires:%Y-%m-%dT%H:%M:%SZ}"
        for gpu, held in licenses
        if held is not None and held.expires is not None and held.expires - now < _ENDS_SOON
    ]
    if ending:
        return warn(
            f"the licenses of {counted(len(ending), 'vGPU')} expire within four hours",
            "nothing if leases are that short; else check that nvidia-gridd reaches the license server",
            ending,
        )
    require([gpu for gpu, held in licenses if held is not None], "NVML does not report licenses")
    return ok(f"{counted(len(vgpus), 'vGPU')} with a license", servers)


def _vgpus(seen: NodeSeen) -> list[Gpu]:
    """The vGPUs that NVML shows; none where NVML could not be read."""
    gpus = () if isinstance(seen.inventory, Unread) else seen.inventory.gpus
    return [gpu for gpu in gpus if gpu.virtualization == "vgpu"]


EDITION_CHECKS = (_driver_edition, _vgpu_license)
