"""Nodes as NVML and sysfs tell of them, made without any I/O."""

from dataclasses import replace

from driver.hardware.functions import NVIDIA_VENDOR_ID
from driver.policy.offers import Withheld
from tests.gpus import (
    Gpu,
    Inventory,
    IommuGroup,
    Offers,
    PciAddress,
    PciFunction,
    PciView,
    node_offers,
    parse_config,
)

FIRST, SECOND = PciAddress.parse("0000:1b:00.0"), PciAddress.parse("0000:43:00.0")
AUDIO = PciAddress.parse("0000:1b:00.1")
OTHER = PciAddress.parse("0000:1b:00.2")

GIB = 2**30
DISPLAY, SOUND, NETWORK, BRIDGE = 0x030200, 0x040300, 0x020000, 0x060400


def function(pci: PciAddress, **said: object) -> PciFunction:
    """An L40S with the NVIDIA driver, alone in the group that has the number of its bus."""
    known = PciFunction(
        pci, NVIDIA_VENDOR_ID, 0x26B9, DISPLAY, "nvidia", pci.bus, addressable_bytes=300 * 2**20
    )
    return replace(known, **said)  # type: ignore[arg-type]  # fields of the function


def gpu(pci: PciAddress, **said: object) -> Gpu:
    """The same as NVML tells of it."""
    known = Gpu(
        pci=pci,
        uuid=f"GPU-{pci.bus}",
        minor=pci.bus,
        index=0 if pci == FIRST else 1,
        product_name="NVIDIA L40S",
        architecture="Ada",
        memory_bytes=45 * GIB,
        mig_capable=False,
        virtualization="none",
    )
    return replace(known, **said)  # type: ignore[arg-type]  # fields of the GPU


def node(*functions: PciFunction, told: tuple[Gpu, ...] | None = None, iommufd: bool = False) -> Inventory:
    """A node with these functions; NVML tells of the physical GPUs that the NVIDIA driver has."""
    numbers = sorted({one.iommu_group for one in functions if one.iommu_group is not None})
    groups = tuple(
        IommuGroup(number, tuple(one for one in functions if one.iommu_group == number)) for number in numbers
    )
    gpus = tuple(one for one in functions if one.is_gpu)
    if told is None:
        told = tuple(gpu(one.pci) for one in gpus if one.driver == "nvidia" and one.physical is None)
    return Inventory(told, "550.163.01", "12.4", pci=PciView(gpus, groups, iommufd))


def offered(found: Inventory, *rules: str) -> Offers:
    """What a node offers by these rules, each the fields of one in YAML's flow style."""
    text = ", ".join(f"{{{rule}}}" for rule in rules)
    return node_offers(found, parse_config(f"{{version: v1, rules: [{text}]}}", "rules"))


def reasons(offers: Offers) -> dict[str, str]:
    """Why things are withheld: the GPU, and its form where it is not all of it."""
    return {_words(one): one.reason for one in offers.withheld}


def _words(one: Withheld) -> str:
    return str(one.pci) if one.part == "gpu" else f"{one.pci} {one.part}"
