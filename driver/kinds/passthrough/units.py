"""Which GPUs can be passed through, which of them only together, why others cannot; and their names. Pure.

vfio hands out whole IOMMU groups, because a function can reach all others of its group by DMA.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from driver.devices.gpu_policy import GpuPolicy
from driver.devices.limits import MAX_CONSUMED_SETS, is_dns_label
from driver.devices.names import gpu_device_name, parse_gpu_device_name
from driver.hardware.functions import NVIDIA_KERNEL_DRIVER, IommuGroup, PciFunction, PciView
from driver.hardware.gpu import Gpu
from driver.kinds.kind import Policies
from driver.kinds.passthrough.field import is_alone, is_wanted
from driver.kinds.whole import MODE_ON
from driver.nvml.pci_address import PciAddress

_ADDRESS = r"[0-9a-f]{4,8}-[0-9a-f]{2}-[0-9a-f]{2}-[0-7]"
_NAME = re.compile(rf"gpu-(?P<addresses>{_ADDRESS}(?:-{_ADDRESS})*)-vfio", re.ASCII)

NO_IOMMU = (
    "it is not behind an IOMMU, so a virtual machine could reach all of the node's memory: turn it on in "
    "the firmware, and with intel_iommu=on or amd_iommu=on on the kernel's command line"
)
VIRTUAL_FUNCTIONS_ON = (
    "its virtual functions are on, and vfio refuses such a GPU: turn them off (sriov-manage -d)"
)
HANDED_OUT_BY_FUNCTIONS = "its virtual functions are passed through instead"
VGPU_SLOT = "it is a slot for a vGPU, and the NVIDIA driver uses it"
IN_A_VGPU = "it is a vGPU, which this machine cannot pass on"


def passthrough_device_name(gpus: Sequence[PciAddress]) -> str | None:
    """The device name of GPUs that are passed through together: ``gpu-0000-8a-00-0-vfio`` for one.

    The name of several has all of them in the given order: ``gpu-0000-8a-00-0-0000-8b-00-0-vfio``. None if
    that is too long for a device name.
    """
    addresses = "-".join(gpu_device_name(pci).removeprefix("gpu-") for pci in gpus)
    name = f"gpu-{addresses}-vfio"
    return name if is_dns_label(name) else None


def parse_passthrough_name(unshared: str) -> tuple[PciAddress, ...] | None:
    """The addresses of the GPUs in such a name, at least one; None for any other name."""
    match = _NAME.fullmatch(unshared)
    if match is None:
        return None
    named = re.findall(_ADDRESS, match["addresses"], re.ASCII)
    found = [pci for one in named if (pci := parse_gpu_device_name(f"gpu-{one}")) is not None]
    # Only one way to write the name is accepted: sorted addresses, none of them twice.
    return tuple(found) if passthrough_device_name(sorted(set(found))) == unshared else None


@dataclass(frozen=True, slots=True)
class Unit:
    """GPUs that a virtual machine gets together, since they are in one IOMMU group; mostly it is one.

    ``functions`` are sorted by address. ``reason`` is why they cannot be passed through, empty if they can.
    """

    functions: tuple[PciFunction, ...]
    reason: str = ""

    @property
    def addresses(self) -> tuple[PciAddress, ...]:
        """The addresses of the GPUs."""
        return tuple(function.pci for function in self.functions)


def units(view: PciView, policies: Policies, gpus: Mapping[PciAddress, Gpu]) -> Iterator[Unit]:
    """The GPUs that policies want passed through, each once, at the lowest address of its unit.

    ``gpus`` are those that NVML lists.
    """
    done: set[PciAddress] = set()
    for function in view.functions:
        if function.pci in done or not is_wanted(policy_of(function, policies)):
            continue
        group = view.group(function.iommu_group)
        # A virtual function that is bound to the NVIDIA driver is a slot for vGPUs.
        if function.physical is not None and function.driver == NVIDIA_KERNEL_DRIVER:
            continue
        together = group.gpus if group is not None else (function,)
        done.update(one.pci for one in together)
        yield Unit(together, _why_not(together, group, policies, gpus))


def policy_of(function: PciFunction, policies: Policies) -> GpuPolicy | None:
    """The policy of a function; a virtual function has that of its physical one."""
    return policies.get(function.physical or function.pci)


def _why_not(
    together: tuple[PciFunction, ...],
    group: IommuGroup | None,
    policies: Policies,
    gpus: Mapping[PciAddress, Gpu],
) -> str:
    """Why these GPUs cannot be passed through, empty if they can."""
    # A function has an IOMMU group only while the kernel uses an IOMMU.
    if group is None:
        return NO_IOMMU
    for function in together:
        reason = _why_not_one(function, gpus.get(function.pci), policy_of(function, policies))
        if reason:
            return reason if len(together) == 1 else f"{function.pci} of its IOMMU group: {reason}"
    reason = _in_the_way(group)
    return reason or _not_together(together, group, policies)


def _why_not_one(function: PciFunction, gpu: Gpu | None, policy: GpuPolicy | None) -> str:
    if function.driver not in (None, NVIDIA_KERNEL_DRIVER) and not function.on_vfio:
        return f"the kernel driver {function.driver} uses it"
    if function.physical is not None and function.driver == NVIDIA_KERNEL_DRIVER:
        return VGPU_SLOT
    if function.virtual:
        return VIRTUAL_FUNCTIONS_ON
    if gpu is not None and gpu.virtualization == "vgpu":
        return IN_A_VGPU
    return MODE_ON if gpu is not None and gpu.mig_enabled and not _leaves_mig(gpu, policy) else ""


def _leaves_mig(gpu: Gpu, policy: GpuPolicy | None) -> bool:
    """Whether this driver turns MIG mode off again after the last claim of a partition."""
    # Then counters keep the GPU's forms apart, and MIG mode is not in the way.
    ours = policy is not None and policy.mig.mode in ("dynamic", "layout")
    return ours and gpu.mig is not None and gpu.mig.without_reset


def _in_the_way(group: IommuGroup) -> str:
    """Why the group's other functions forbid it, empty if they do not."""
    # All functions of a group have to leave their kernel drivers, so the node would lose these.
    others = [f"{one.pci} ({one.driver})" for one in group.used_by_the_node]
    if not others:
        return ""
    return f"its IOMMU group {group.number} also has {', '.join(others)}, which the node would lose"


def _not_together(together: tuple[PciFunction, ...], group: IommuGroup, policies: Policies) -> str:
    """Why the GPUs of one group cannot be passed through together, empty if they can or there is only one."""
    where = f"its IOMMU group {group.number}"
    kept = [str(one.pci) for one in together if not is_wanted(policy_of(one, policies))]
    if kept:
        return f"{where} also has {', '.join(kept)}, which is not offered for passthrough"
    if passthrough_device_name([one.pci for one in together]) is None:
        return f"{where} has {len(together)} GPUs, too many for the name of a device"
    counted = [one for one in together if (policy := policy_of(one, policies)) and not is_alone(policy)]
    # Each of these GPUs has a counter set, and the API lets a device consume from two at most.
    if len(counted) > MAX_CONSUMED_SETS:
        return (
            f"{where} has {len(together)} GPUs, but at most {MAX_CONSUMED_SETS} can be offered in other "
            "forms as well: offer them for passthrough only"
        )
    return ""
