"""Makes the device of GPUs that are passed through together, mostly of one."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, TypeVar

from driver.devices.device import Device
from driver.devices.region import Region
from driver.hardware.pci_products import product_name
from driver.health.problems import taints
from driver.kinds.gpu_attributes import attribute_text, known

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from driver.devices.device import AttributeValue
    from driver.hardware.functions import PciFunction, PciView
    from driver.hardware.gpu import Gpu
    from driver.kinds.passthrough.units import Unit
    from driver.nvml.pci_address import PciAddress

T = TypeVar("T")

ATTRIBUTE_TYPE = "vfio"


def passthrough_device(
    name: str,
    unit: Unit,
    view: PciView,
    gpus: Mapping[PciAddress, Gpu],
    connected: Mapping[str, AttributeValue],
) -> Device:
    """The device, without counters. What sysfs does not tell, and what GPUs of a unit differ in, is absent.

    ``gpus`` is what NVML tells: names and memory of the GPUs that the NVIDIA driver has. ``connected`` are
    attributes that say which fabric partitions the GPUs are in. Attributes, and the
    capacity ``addressableMemory``, are those of NVIDIA's own driver, but for ``gpuCount`` and what whole GPUs
    have as well.
    """
    first, told = unit.functions[0], [gpus.get(pci) for pci in unit.addresses]
    attributes = known(
        {
            **connected,
            "type": ATTRIBUTE_TYPE,
            "uuid": passthrough_uuid(first.pci),
            "vendorID": f"0x{first.vendor_id:04x}",
            "deviceID": _same(f"0x{one.device_id:04x}" for one in unit.functions),
            "productName": _same(map(_product, unit.functions, told)),
            "brand": _same(attribute_text(gpu.brand) if gpu else None for gpu in told),
            "architecture": _same(attribute_text(gpu.architecture) if gpu else None for gpu in told),
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
        "memory": _sum(gpu.memory_bytes if gpu else None for gpu in told),
    }
    if amounts["addressableMemory"] is not None:
        amounts["addressableMemory"] = _power_of_two(amounts["addressableMemory"])
    return Device(
        name,
        first.pci,
        attributes,
        {key: amount for key, amount in amounts.items() if amount is not None},
        tuple(dict.fromkeys(taint for gpu in told if gpu for taint in taints(gpu.problems))),
        more_regions=tuple(Region(pci) for pci in unit.addresses[1:]),
    )


def passthrough_uuid(pci: PciAddress) -> str:
    """The UUID that NVIDIA's own driver gives to such a device: of its address, since vfio tells no other."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, str(pci)))


def _product(function: PciFunction, gpu: Gpu | None) -> str | None:
    """The name as NVML tells it, else as the device id does; a virtual function has one of its own."""
    told = gpu.product_name if gpu is not None else product_name(function.device_id)
    return attribute_text(told)


def _same(values: Iterable[T | None]) -> T | None:
    """The value that all have; None where they differ."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _sum(amounts: Iterable[int | None]) -> int | None:
    """All of them together; None where one is not known."""
    found = list(amounts)
    return None if None in found else sum(amount or 0 for amount in found)


def _power_of_two(amount: int) -> int:
    """The next power of two: NVIDIA's driver tells how large a window of addresses has to be."""
    return 1 << (amount - 1).bit_length()
