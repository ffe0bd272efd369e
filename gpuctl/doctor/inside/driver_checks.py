"""Checks of the NVIDIA driver on a node: its files, its library, its kernel module, its device nodes."""

from __future__ import annotations

from gpuctl.doctor.check import Check, Finding, counted, fail, ok, skipped, warn
from gpuctl.doctor.inside.seen import NodeSeen
from gpuctl.doctor.outside.seen import Unread
from kubeletplugin.devices.host.device_nodes import REQUIRED_CONTROL_NODES

SMI = "nvidia-smi"
_NO_GPU = "no GPU of NVIDIA is on the node's PCI bus"


def _driver_root(seen: NodeSeen) -> Finding:
    files = seen.driver_files
    passed_over = [f"{one.path} ({one.name}): {one.reason}" for one in seen.looked if one.reason]
    if isinstance(files, Unread) and not seen.gpus_on_bus:
        return skipped(_NO_GPU)
    if isinstance(files, Unread):
        return fail(
            files.why,
            "install the NVIDIA driver, which is noticed by itself, or set --driver-root of the driver's "
            "processes to where it is",
            passed_over,
        )
    root = next((f"{one.path} ({one.name})" for one in seen.looked if not one.reason), "the driver root")
    programs = {path.rpartition("/")[2] for path in files.binaries}
    if SMI not in programs:
        return warn(
            f"driver {files.version} below {root} has no {SMI}, which sets time-slices and compute modes",
            "install the driver's programs, where GPUs are to be shared",
        )
    return ok(
        f"driver {files.version} below {root}, {counted(len(files.libraries), 'library', 'libraries')}, "
        f"{counted(len(files.binaries), 'program')}",
        passed_over,
    )


def _library(seen: NodeSeen) -> Finding:
    if isinstance(seen.inventory, Unread) and not seen.gpus_on_bus:
        return skipped(_NO_GPU)
    if isinstance(seen.inventory, Unread):
        return fail(
            seen.inventory.why,
            "see that the kernel module is loaded (lsmod) and what the kernel log says; "
            "`nvidia-smi` on the node has to work first",
        )
    found, version = seen.inventory, seen.inventory.driver_version or "of a version that it does not tell"
    if not found.gpus and not found.unread:
        return warn(f"NVML, driver {version}, tells of no GPU", "nothing, where there is none")
    problems = [
        f"{gpu.pci}: {one.call}: {one.message}"
        for gpu in found.gpus
        for one in gpu.problems
        if one.reason != "unlicensed"  # the check vgpu-license
    ]
    problems += [f"{one.call}: {one.message}" for one in found.problems]
    problems += [f"{one.pci or 'a GPU'}: it never told who it is" for one in found.unread]
    if problems:
        return warn(
            f"NVML, driver {version}, cannot tell everything of {counted(len(found.gpus), 'GPU')}",
            "look for Xid messages in the kernel log; the taints of the devices say what it means",
            problems,
        )
    return ok(f"NVML, driver {version}, tells of {counted(len(found.gpus), 'GPU')}")


def _same_driver(seen: NodeSeen) -> Finding:
    if seen.kernel_driver is None:
        return skipped("sysfs does not tell which version of the kernel module is loaded")
    if isinstance(seen.driver_files, Unread):
        return skipped(seen.driver_files.why)
    if seen.kernel_driver != seen.driver_files.version:
        return fail(
            f"the kernel module is {seen.kernel_driver}, the libraries are {seen.driver_files.version}",
            "end the pods with GPUs, then load the module of the installed driver, or restart the node",
        )
    return ok(f"kernel module and libraries are {seen.kernel_driver}")


def _device_nodes(seen: NodeSeen) -> Finding:
    if isinstance(seen.inventory, Unread) and not seen.gpus_on_bus:
        return skipped(_NO_GPU)
    wanted = list(REQUIRED_CONTROL_NODES)
    if not isinstance(seen.inventory, Unread):
        wanted += [f"/dev/nvidia{gpu.minor}" for gpu in seen.inventory.gpus]
    missing = [path for path in wanted if path not in seen.device_nodes]
    if missing:
        return fail(
            f"{counted(len(missing), 'device node')} of {len(wanted)} missing",
            "load the NVIDIA kernel modules and run nvidia-modprobe -u -c 0, or nvidia-smi, on the node",
            missing,
        )
    if isinstance(seen.inventory, Unread):
        return skipped("the control nodes are there; which GPUs there are is not known")
    caps = sum(path.startswith("/dev/nvidia-caps/") for path in seen.device_nodes)
    return ok(f"all {len(wanted)} device nodes are there, and {caps} of MIG capabilities")


DRIVER_CHECKS: tuple[Check[NodeSeen], ...] = (
    Check(
        "driver-root",
        "the places of the NVIDIA driver, and its libraries and programs below the one that is used",
        "there is none; warns without nvidia-smi",
        _driver_root,
    ),
    Check(
        "nvml",
        "NVML: whether its library can be loaded, and what it tells of the GPUs",
        "it cannot be loaded or asked; warns of GPUs that do not tell everything",
        _library,
    ),
    Check(
        "same-driver",
        "the version of the loaded kernel module against that of the libraries",
        "they differ",
        _same_driver,
    ),
    Check(
        "device-nodes",
        "`/dev/nvidiactl`, those of UVM, one for each GPU, and those of MIG",
        "one of the first three kinds is missing",
        _device_nodes,
    ),
)
