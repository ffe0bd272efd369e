"""The attributes that every form of a GPU has: its model, its versions, its place on the board."""

from __future__ import annotations

import re
from functools import lru_cache

from driver.devices.device import AttributeValue, Version
from driver.devices.limits import MAX_VALUE_BYTES, is_semantic_version
from driver.hardware.gpu import Gpu, Inventory

_VERSION = re.compile(
    r"^(?P<major>\d+)(?:\.(?P<minor>\d+))?(?:\.(?P<patch>\d+))?(?P<rest>-[0-9A-Za-z.-]+)?$", re.ASCII
)


def physical_attributes(gpu: Gpu, inventory: Inventory) -> dict[str, AttributeValue | None]:
    """What the GPU is and where it is connected; None if something is not known."""
    return {
        "productName": attribute_text(gpu.product_name),
        "brand": attribute_text(gpu.brand),
        "architecture": attribute_text(gpu.architecture),
        "cudaComputeCapability": semantic_version(gpu.cuda_compute_capability),
        "driverVersion": semantic_version(inventory.driver_version),
        "cudaDriverVersion": semantic_version(inventory.cuda_driver_version),
        "addressingMode": attribute_text(gpu.addressing_mode),
        "index": gpu.index,
        # Once under the name of NVIDIA's own driver, and once under the standard name (KEP-6072).
        "numaNode": gpu.numa_node,
        "resource.kubernetes.io/numaNode": gpu.numa_node,
        "resource.kubernetes.io/pciBusID": str(gpu.pci),
        "resource.kubernetes.io/pcieRoot": attribute_text(gpu.pcie_root),
    }


def known(attributes: dict[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    """The attributes that are known, sorted by name."""
    return {name: value for name, value in sorted(attributes.items()) if value is not None}


def attribute_text(value: str | None) -> str | None:
    """The value if an attribute can hold it (not empty, at most 64 bytes), else None."""
    return value if value and len(value.encode()) <= MAX_VALUE_BYTES else None


@lru_cache(maxsize=64)  # the GPUs of a node share their driver, and mostly their model
def semantic_version(text: str | None) -> Version | None:
    """A version from NVML as a semantic version: ``550.163.01`` becomes 550.163.1, ``12.4`` becomes 12.4.0.

    None if it is unknown, not a version, or too long for an attribute.
    """
    match = _VERSION.match(text or "")
    if match is None:
        return None
    # A semantic version has three numbers without leading zeros; the API server refuses anything else.
    numbers = ".".join(str(int(match[part] or 0)) for part in ("major", "minor", "patch"))
    version = numbers + (match["rest"] or "")
    usable = len(version) <= MAX_VALUE_BYTES and is_semantic_version(version)
    return Version(version) if usable else None
