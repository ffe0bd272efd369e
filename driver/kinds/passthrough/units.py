"""Says which GPUs can be passed through, which only together, and why one cannot be; and their names: pure.

vfio hands out IOMMU groups. Whoever has a function of a group can reach all of it by DMA.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from driver.devices.gpu_policy import GpuPolicy
from driver.devices.limits import is_dns_label
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
    "no IOMMU guards it, so a virtual machine could reach all of the node's memory: turn it on in the "
    "firmware, and with intel_iommu=on or amd_iommu=on on the kernel's command line"
)
VIRTUAL_FUNCTIONS_ON = (
    "its virtual functions are on, and vfio takes no function that has some: turn them off (sriov-manage -d)"
)
HANDED_OUT_BY_FUNCTIONS = "its virtual functions are passed through instead"
VGPU_SLOT = "the NVIDIA driver has it, as a slot of a vGPU"
IN_A_VGPU = "it is a vGPU, which this machine cannot hand on"

MOST_COUNTED = 2
"""How many counter sets a device can take from (resource.k8s.io/v1), so with how many GPUs it can contend."""


def passthrough_device_name(gpus: Sequence[PciAddress]) -> str | None:
    """The device name of GPUs that are passed through together: ``gpu-0000-8a-00-0-vfio`` for one.

    Those of several name all of them in their order: ``gpu-0000-8a-00-0-0000-8b-00-0-vfio``. None where that
    is longer than a name of a device can be.
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
    # Each name has one way to write it: in the order of the addresses, none twice.
    return tuple(found) if passthrough_device_name(sorted(set(found))) == unshared else None


@dataclass(frozen=True, slots=True)
class Unit:
    """GPUs that a virtual machine gets together, since no IOMMU tells them apart; mostly one.

    ``functions`` are sorted by address. ``reason`` is why they cannot be passed through, empty where they
    can.
    """

    functions: tuple[PciFunction, ...]
    reason: str = ""

    @property
    def addresses(self) -> tuple[PciAddress, ...]:
        """The addresses of the GPUs."""
        return tuple(function.pci for function in self.functions)


def units(view: PciView, policies: Policies, gpus: Mapping[PciAddress, Gpu]) -> Iterator[Unit]:
    """The GPUs that policies want passed through, each once, by the lowest address.

    ``gpus`` is what NVML tells. A virtual function goes by the policy of its physical one; those that the
    NVIDIA driver has are slots of vGPUs.
    """
    done: set[PciAddress] = set()
    for function in view.functions:
        if function.pci in done or not is_wanted(_policy(function, policies)):
            continue
        group = view.group(function.iommu_group)
        if function.physical is not None and function.driver == NVIDIA_KERNEL_DRIVER:
            continue
        together = group.gpus if group is not None else (function,)
        done.update(one.pci for one in together)
        yield Unit(together, _why_not(together, group, policies, gpus))


def _policy(function: PciFunction, policies: Policies) -> GpuPolicy | None:
    return policies.get(function.physical or function.pci)


def _why_not(
    together: tuple[PciFunction, ...],
    group: IommuGroup | None,
    policies: Policies,
    gpus: Mapping[PciAddress, Gpu],
) -> str:
    """Why these GPUs cannot be passed through, empty where they can."""
    if group is None:
        return NO_IOMMU
    for function in together:
        reason = _why_not_one(function, gpus.get(function.pci), _policy(function, policies))
        if reason:
            return reason if len(together) == 1 else f"{function.pci} of its IOMMU group: {reason}"
    reason = _in_the_way(group)
    return reason or _not_together(together, group, policies)


def _why_not_one(function: PciFunction, gpu: Gpu | None, policy: GpuPolicy | None) -> str:
    if function.driver not in (None, NVIDIA_KERNEL_DRIVER) and not function.on_vfio:
        return f"the kernel driver {function.driver} holds it"
    if function.physical is not None and function.driver == NVIDIA_KERNEL_DRIVER:
        return VGPU_SLOT
    if function.virtual:
        return VIRTUAL_FUNCTIONS_ON
    if gpu is not None and gpu.virtualization == "vgpu":
        return IN_A_VGPU
    return MODE_ON if gpu is not None and gpu.mig_enabled and not _leaves_mig(gpu, policy) else ""


def _leaves_mig(gpu: Gpu, policy: GpuPolicy | None) -> bool:
    """Whether MIG mode ends with the last partition that a claim has: then counters keep the forms apart."""
    ours = policy is not None and policy.mig.mode in ("dynamic", "layout")
    return ours and gpu.mig is not None and gpu.mig.without_reset


def _in_the_way(group: IommuGroup) -> str:
    """What of the group is no part of a GPU and works for the node: it would be taken away from it."""
    others = [f"{one.pci} ({one.driver})" for one in group.at_work_for_the_node]
    if not others:
        return ""
    return f"its IOMMU group {group.number} has {', '.join(others)} as well, which the node would lose"


def _not_together(together: tuple[PciFunction, ...], group: IommuGroup, policies: Policies) -> str:
    """Why GPUs of one group cannot go together, empty where they can or there is one."""
    where = f"its IOMMU group {group.number}"
    kept = [str(one.pci) for one in together if not is_wanted(_policy(one, policies))]
    if kept:
        return f"{where} has {', '.join(kept)} as well, which is not to be passed through"
    if passthrough_device_name([one.pci for one in together]) is None:
        return f"{where} has {len(together)} GPUs, too many for the name of a device"
    counted = [one for one in together if (policy := _policy(one, policies)) and not is_alone(policy)]
    if len(counted) > MOST_COUNTED:
        return (
            f"{where} has {len(together)} GPUs, and a device can stand beside other forms of "
            f"{MOST_COUNTED} at most: offer them for passthrough alone"
        )
    return ""
