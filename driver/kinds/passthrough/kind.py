"""GPUs for virtual machines, with their whole IOMMU group. Prepare binds them to vfio.

vfio hands out whole IOMMU groups, because a function can reach all others of its group by DMA. So this also
decides which GPUs can be passed through, which of them only together, and why others cannot.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from driver.devices.device import AttributeValue, Device
from driver.devices.gpu_policy import GpuPolicy
from driver.devices.limits import MAX_CONSUMED_SETS, is_dns_label
from driver.devices.names import gpu_device_name, parse_gpu_device_name
from driver.devices.region import Region
from driver.hardware.functions import NVIDIA_KERNEL_DRIVER, IommuGroup, PciFunction, PciView
from driver.hardware.gpu import Gpu, Inventory
from driver.hardware.pci import product_name
from driver.kinds.fabric import fabric_attributes, in_common
from driver.kinds.forms import Forms, GpuForms, Part, alternatives
from driver.kinds.gpu_attributes import attribute_text, known
from driver.kinds.kind import OfferedKind, Policies, PolicyField
from driver.kinds.whole import MODE_ON
from driver.nvml.pci_address import PciAddress

FORM = "passthrough"
FIELD = "passthrough"
SCHEMA: dict[str, Any] = {
    "description": "Whether the GPU is offered to virtual machines as well.",
    "type": "boolean",
}
"""The JSON schema of the field."""


class PassthroughField(PolicyField):
    """The field ``passthrough``."""

    name = FIELD
    schema = SCHEMA

    def read(self, value: Any, path: str, errors: list[str]) -> bool:
        """The value of the field; a mistake is added to ``errors``."""
        if not isinstance(value, bool):
            errors.append(f"{path}: must be true or false")
        return value is True

    def contradictions(self, policy: GpuPolicy) -> Iterator[str]:
        """Fields that exclude an offer of passthrough alone."""
        if policy.form != FORM:
            return
        if policy.more.get(FIELD) is False:
            yield "passthrough: must not be false with offer: passthrough"
        if policy.mig.mode in ("dynamic", "layout"):
            yield "offer: must not be passthrough for partitions: set passthrough: true to offer both"
        if policy.shared:
            yield "offer: must not be passthrough with shared: set passthrough: true to offer both"


def is_wanted(policy: GpuPolicy | None) -> bool:
    """Whether the policy offers a GPU to virtual machines."""
    return policy is not None and (policy.form == FORM or policy.more.get(FIELD) is True)


def is_alone(policy: GpuPolicy) -> bool:
    """Whether the policy offers the GPU in no other form."""
    return policy.form == FORM


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


T = TypeVar("T")

_ATTRIBUTE_TYPE = "vfio"

_Forms = dict["PciAddress", GpuForms]


def _passthrough_device(
    name: str,
    unit: Unit,
    view: PciView,
    gpus: Mapping[PciAddress, Gpu],
    connected: Mapping[str, AttributeValue],
) -> Device:
    """The device, without counters. Attributes that are unknown, or that differ between its GPUs, are absent.

    ``gpus`` are those that NVML lists, with their names and memory. ``connected`` are the attributes of
    fabric partitions. Attributes and the capacity ``addressableMemory`` have the names of NVIDIA's own
    driver, except ``gpuCount`` and those that whole GPUs have too.
    """
    first, known_gpus = unit.functions[0], [gpus.get(pci) for pci in unit.addresses]
    attributes = known(
        {
            **connected,
            "type": _ATTRIBUTE_TYPE,
            "uuid": passthrough_uuid(first.pci),
            "vendorID": f"0x{first.vendor_id:04x}",
            "deviceID": _same(f"0x{one.device_id:04x}" for one in unit.functions),
            "productName": _same(map(_product, unit.functions, known_gpus)),
            "brand": _same(attribute_text(gpu.brand) if gpu else None for gpu in known_gpus),
            "architecture": _same(attribute_text(gpu.architecture) if gpu else None for gpu in known_gpus),
            "iommuFDEnabled": view.has_iommufd,
            "iommuGroup": first.iommu_group,
            "gpuCount": len(unit.functions),
            "virtualFunction": first.physical is not None,
            "sharing": "none",
            "memoryIsolation": "hardware",
            "numaNode": (numa := _same(one.numa_node for one in unit.functions)),
            "resource.kubernetes.io/numaNode": numa,
            "resource.kubernetes.io/pciBusID": str(first.pci),
            "resource.kubernetes.io/pcieRoot": attribute_text(_same(one.pcie_root for one in unit.functions)),
        }
    )
    amounts = {
        "addressableMemory": _sum(one.addressable_bytes for one in unit.functions),
        "memory": _sum(gpu.memory_bytes if gpu else None for gpu in known_gpus),
    }
    # NVIDIA's driver rounds up to a power of two: it gives the size of the window of addresses that is
    # needed.
    if amounts["addressableMemory"] is not None:
        amounts["addressableMemory"] = _power_of_two(amounts["addressableMemory"])
    return Device(
        name,
        first.pci,
        attributes,
        {key: amount for key, amount in amounts.items() if amount is not None},
        more_regions=tuple(Region(pci) for pci in unit.addresses[1:]),
    )


def passthrough_uuid(pci: PciAddress) -> str:
    """The UUID that NVIDIA's own driver gives to such a device."""
    # It is made of the address: the GPU's own UUID is not known while another kernel driver has it.
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, str(pci)))


def _product(function: PciFunction, gpu: Gpu | None) -> str | None:
    """The name from NVML, else the name that belongs to the PCI device id."""
    return attribute_text(gpu.product_name if gpu is not None else product_name(function.device_id))


def _same(values: Iterable[T | None]) -> T | None:
    """The value that all of them have; None if they differ."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _sum(amounts: Iterable[int | None]) -> int | None:
    """The sum; None if one of them is not known."""
    found = list(amounts)
    return None if None in found else sum(amount or 0 for amount in found)


def _power_of_two(amount: int) -> int:
    """The next power of two that is not below the amount."""
    return 1 << (amount - 1).bit_length()


class PassthroughKind(OfferedKind):
    """GPUs that are passed through."""

    word = "passthrough"
    form = FORM
    attribute_type = _ATTRIBUTE_TYPE
    opaque = "VfioDeviceConfig"
    described = "a GPU for a virtual machine"
    by_admin = False
    has_modes = False
    leaves_driver = True
    policy_field: PolicyField | None = PassthroughField()

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        """The GPUs that rules offer to virtual machines, beside their other forms or alone."""
        gpus = {gpu.pci: gpu for gpu in inventory.gpus}
        found, fabric = dict(so_far.gpus), fabric_attributes(inventory)
        for unit in units(inventory.pci, policies, gpus):
            # The other forms of these GPUs decide about the counters, so they have to be known.
            if any(pci in found and found[pci].doubtful for pci in unit.addresses):
                continue
            if unit.reason:
                _keep_back(unit, policies, found)
            else:
                name = passthrough_device_name(unit.addresses) or ""
                connected = in_common(fabric, unit.addresses)
                device = _passthrough_device(name, unit, inventory.pci, gpus, connected)
                _offer(unit, device, policies, found)
        return Forms(found, so_far.others)

    def parse(self, unshared: str) -> tuple[Region, ...] | None:
        """All of the GPUs in the name."""
        found = parse_passthrough_name(unshared)
        return None if found is None else tuple(map(Region, found))

    def title(self, unshared: str, attributes: Mapping[str, Any]) -> str:
        """The word passthrough, with the number of GPUs if there are several."""
        count = len(self.parse(unshared) or ())
        return FORM if count <= 1 else f"{FORM} of {count} GPUs"


PASSTHROUGH = PassthroughKind()


def _offer(unit: Unit, device: Device, policies: Policies, found: _Forms) -> None:
    """Add the device to the forms of its first GPU, and give all of its GPUs the counters that it needs."""
    for index, function in enumerate(unit.functions):
        policy = policy_of(function, policies)
        if function.physical is not None:
            found[function.pci] = _only(function.pci)
            _hand_out_by_functions(function.physical, found)
        elif policy is None or is_alone(policy) or function.pci not in found:
            found[function.pci] = _only(function.pci)
        else:
            found[function.pci] = _beside_others(function.pci, found[function.pci], policy)
        if index == 0:
            found[function.pci] = replace(found[function.pci], passthrough=device)


def _only(pci: PciAddress) -> GpuForms:
    """A GPU without any other form."""
    return GpuForms(Device(gpu_device_name(pci), pci))


def _beside_others(pci: PciAddress, forms: GpuForms, policy: GpuPolicy) -> GpuForms:
    """The forms with counters, if there are other forms or sharing will add some."""
    # A reason for offering nothing of the GPU is now one for the other forms only.
    rest: Part = "partitions" if policy.form == "partitions" else "whole"
    kept = tuple((rest if part == "gpu" else part, reason) for part, reason in forms.withheld)
    forms = replace(forms, withheld=kept)
    if forms.counters is not None:
        return forms
    if forms.partitions:
        return _counted_partitions(pci, forms)
    if forms.whole or policy.shared:
        return replace(forms, counters=alternatives(pci, ("gpu",)))
    return forms


def _counted_partitions(pci: PciAddress, forms: GpuForms) -> GpuForms:
    """The forms with a counter for each partition."""
    names = {one.name: one.name.removeprefix(f"{forms.physical.name}-") for one in forms.partitions}
    counters = alternatives(pci, names.values())
    partitions = tuple(
        replace(one, counter_set=counters.name, consumes={names[one.name]: 1}) for one in forms.partitions
    )
    return replace(forms, partitions=partitions, counters=counters)


def _hand_out_by_functions(physical: PciAddress, found: _Forms) -> None:
    """Offer nothing else of a GPU whose virtual functions are passed through."""
    if physical in found:
        found[physical] = found[physical].nothing(HANDED_OUT_BY_FUNCTIONS)


def _keep_back(unit: Unit, policies: Policies, found: _Forms) -> None:
    """Note the reason at the GPUs that rules pass through; those meant for nothing else have no form."""
    for function in unit.functions:
        policy = policy_of(function, policies)
        if policy is None or not is_wanted(policy):
            continue
        forms = found.get(function.pci) or _only(function.pci)
        if is_alone(policy) or function.pci not in found:
            found[function.pci] = forms.nothing(unit.reason)
        elif forms.withheld != (("gpu", unit.reason),):
            found[function.pci] = replace(forms, withheld=(*forms.withheld, ("passthrough", unit.reason)))
