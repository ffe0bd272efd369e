"""Checks of which NVIDIA driver is installed, for containers, vGPU guests or vGPU hosts, and of licenses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from gpuctl.doctor.check import Check, Finding, counted, fail, ok, skipped, warn
from gpuctl.doctor.inside.machines.files import GUEST_CLIENT, HOST_MANAGERS
from gpuctl.doctor.inside.machines.seen import VGPU
from gpuctl.doctor.inside.seen import NodeSeen
from gpuctl.doctor.outside.seen import Unread

if TYPE_CHECKING:
    from driver.hardware.gpu import Gpu

_ENDS_SOON = timedelta(hours=4)
_NO_VGPU = "no GPU of this node is a vGPU"


def _edition(seen: NodeSeen) -> Finding:
    kernel = seen.kernel
    managers = sorted(kernel.licenses.programs & set(HOST_MANAGERS))
    known = 0 if isinstance(seen.inventory, Unread) else len(_vgpus(seen))
    if kernel.vgpus and not known:
        return _guest_without_nvml(seen)
    if known and GUEST_CLIENT not in kernel.licenses.programs:
        return warn(
            f"NVML tells of {counted(known, 'vGPU')}, and {GUEST_CLIENT}, which gets licenses, is not found",
            "install the vGPU guest driver with all of its parts (NVIDIA-Linux-x86_64-...-grid.run)",
        )
    if managers and VGPU not in kernel.offers:
        return warn(
            f"the vGPU manager is installed ({', '.join(managers)}): containers have no CUDA on this node",
            "offer vGPUs here (docs/node-configuration.md), or install the data center driver",
        )
    if managers:
        return ok(f"the vGPU manager, for {counted(len(kernel.gpus), 'GPU')}")
    if known:
        return ok(f"the vGPU guest driver, for {counted(known, 'vGPU')}")
    if GUEST_CLIENT in kernel.licenses.programs:
        return ok("the vGPU guest driver, which works on GPUs that are passed through as well")
    if isinstance(seen.driver_files, Unread):
        return skipped(seen.driver_files.why)
    return ok("the data center driver, and no vGPU")


def _guest_without_nvml(seen: NodeSeen) -> Finding:
    vgpus = [str(pci) for pci in sorted(seen.kernel.vgpus)]
    if isinstance(seen.driver_files, Unread):
        return fail(
            f"{counted(len(vgpus), 'vGPU')}, and no NVIDIA driver",
            "install the vGPU guest driver (NVIDIA-Linux-x86_64-...-grid.run) of the host's vGPU release",
            vgpus,
        )
    if GUEST_CLIENT in seen.kernel.licenses.programs:
        return fail(
            f"the vGPU guest driver {seen.driver_files.version} does not take {counted(len(vgpus), 'vGPU')}",
            "take the guest driver of the release of the host's vGPU manager; the kernel log tells more",
            vgpus,
        )
    return fail(
        f"driver {seen.driver_files.version} is the data center driver, which takes no vGPU",
        "remove it, and install the vGPU guest driver (NVIDIA-Linux-...-grid.run) of the host's release",
        vgpus,
    )


def _one_driver(seen: NodeSeen) -> Finding:
    lying = [one for one in seen.looked if one.version]
    if len(lying) < 2:
        return ok("one NVIDIA driver is installed") if lying else skipped("no NVIDIA driver was found")
    lines = [f"{one.path} ({one.name}): {one.version}" for one in lying]
    return warn(
        f"{counted(len(lying), 'NVIDIA driver')} are installed, of which one can work",
        "keep one: remove that of the host, or the GPU operator's driver container (driver.enabled=false)",
        lines,
    )


def _license(seen: NodeSeen) -> Finding:
    if isinstance(seen.inventory, Unread):
        return skipped(seen.inventory.why)
    vgpus = _vgpus(seen)
    if not vgpus:
        return skipped(_NO_VGPU)
    told = [(gpu, gpu.vgpu_license) for gpu in vgpus]
    missing = [f"{gpu.pci}: {held.product}" for gpu, held in told if held is not None and not held.licensed]
    if missing:
        return fail(
            f"{counted(len(missing), 'vGPU')} without a license: CUDA stops to work there after a while",
            "see that nvidia-gridd runs, and what it logs (journalctl -u nvidia-gridd)",
            missing,
        )
    now = datetime.now(UTC)
    ending = [
        f"{gpu.pci}: until {held.expires:%Y-%m-%dT%H:%M:%SZ}"
        for gpu, held in told
        if held is not None and held.expires is not None and held.expires - now < _ENDS_SOON
    ]
    if ending:
        return warn(
            f"the licenses of {counted(len(ending), 'vGPU')} end within four hours",
            "nothing where leases are as short; else see whether nvidia-gridd reaches the license server",
            ending,
        )
    if any(held is None for _, held in told):
        return skipped("NVML does not tell of licenses")
    return ok(f"{counted(len(vgpus), 'vGPU')} with a license")


def _license_client(seen: NodeSeen) -> Finding:
    if not seen.kernel.vgpus and (isinstance(seen.inventory, Unread) or not _vgpus(seen)):
        return skipped(_NO_VGPU)
    servers = seen.kernel.licenses.servers
    if servers:
        return ok("licenses come from a server", servers)
    return warn(
        "nothing says where the licenses of vGPUs come from",
        "put the client configuration token into /etc/nvidia/ClientConfigToken, or have the GPU operator do "
        "so (driver.licensingConfig); a license server of old is ServerAddress in /etc/nvidia/gridd.conf",
    )


def _vgpus(seen: NodeSeen) -> list[Gpu]:
    assert not isinstance(seen.inventory, Unread)  # noqa: S101 - callers have looked
    return [gpu for gpu in seen.inventory.gpus if gpu.virtualization == "vgpu"]


EDITION_CHECKS: tuple[Check[NodeSeen], ...] = (
    Check(
        "driver-edition",
        "which NVIDIA driver is installed: for data centers, for vGPU guests (grid), or the vGPU manager",
        "the node has vGPUs and not their guest driver, or one that does not take them; warns of the vGPU "
        "manager where no vGPUs are offered",
        _edition,
    ),
    Check(
        "one-driver",
        "the places where NVIDIA drivers are installed",
        "never; warns where drivers lie in several",
        _one_driver,
    ),
    Check(
        "vgpu-license",
        "the licenses of vGPUs",
        "one is missing; warns of those that end within four hours",
        _license,
    ),
    Check(
        "license-client",
        "tokens in `/etc/nvidia/ClientConfigToken` and the server in `gridd.conf`",
        "never; warns where the node has vGPUs and neither is there",
        _license_client,
    ),
)
