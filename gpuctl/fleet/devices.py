"""What a published device says about itself: form, taints, memory, and where on which GPU it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal

from driver.devices.device import MEMORY_SLICE
from driver.devices.memory_limits import BY_CGROUP
from driver.devices.region import Region
from driver.health.remedies import remedy_of
from driver.nvml.pci_address import PciAddress
from kubernetes_rules.quantity import parse_quantity

Object = Mapping[str, Any]

Kind = Literal["whole", "partition", "shared", "machine"]
"""A whole GPU, a MIG partition, a share, or a device for a virtual machine."""

Place = tuple[int, int]
"""The first memory slice of a partition, and how many it has."""

_PCI = "resource.kubernetes.io/pciBusID"
_COMPUTE = re.compile(r"(?:\d+c\.)?(\d+)g\.")
# Profiles with the same number of compute slices differ in memory: 1g.10gb has one slice, 1g.20gb has two.
_LEAST_MEMORY_SLICES = {2: 2, 3: 4, 4: 4, 7: 8}


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a device as its slice has it."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """As kubectl writes it."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


def driver_version_text(version: str) -> str:
    """A published driver version as NVIDIA writes it: ``580.95.05``.

    A semantic version has no leading zeros: 580.95.5. NVIDIA's third number has two digits, or is left out,
    so that a 0 says nothing.
    """
    *first, last = version.split(".")
    return ".".join((*first, last.zfill(2) if len(first) == 2 and last != "0" else last))


def meaning(taint: Taint) -> str:
    """What a taint means, and what to do about it."""
    return str(remedy_of(taint) or "not set by this driver")


def taints_of(device: Object) -> tuple[Taint, ...]:
    """The taints of a device, in the order of its slice."""
    return tuple(
        Taint(str(one["key"]), str(one.get("value") or ""), str(one["effect"]))
        for one in device.get("taints") or ()
    )


def attribute(device: Object, name: str) -> Any:
    """The value of a published attribute, whatever its type; None if it is not published."""
    # An attribute is a mapping with one entry: its type (int, bool, string, version) and the value.
    return next(iter((device.get("attributes") or {}).get(name, {}).values()), None)


def attributes(device: Object) -> dict[str, Any]:
    """The values of all published attributes."""
    return {name: attribute(device, name) for name in device.get("attributes") or {}}


def tier_of(device: Object) -> str:
    """The form in which a device is handed out: ``whole``, ``mig 1g.10gb``, ``shared, mps`` and so on."""
    form, profile = attribute(device, "type") or "gpu", attribute(device, "profile")
    if not device.get("allowMultipleAllocations"):
        return f"mig {profile or '?'}" if form == "mig" else "whole" if form == "gpu" else _own_title(device)
    # Fractional: a claim that asks for no amount gets all of it, any other claim a share.
    name = f"mig {profile}, shared" if profile else "fractional" if form == "gpu" else "shared"
    strategy = attribute(device, "sharing")
    # The NVIDIA driver itself holds time-sliced shares to their memory.
    held = ", memory held" if attribute(device, "memoryIsolation") == BY_CGROUP else ""
    return f"{name}, {strategy}{held}" if strategy else name


def _own_title(device: Object) -> str:
    """The name that the device's kind gives it, for a device that no container gets.

    It is the word of the kind, and what distinguishes the device from others of the kind.
    """
    from driver.kinds.registry import KINDS

    name = KINDS.parse(str(device.get("name", "")))
    if name is None:
        return str(attribute(device, "type"))
    title = name.kind.title(name.unshared, attributes(device))
    return title if title.startswith(name.kind.word) else f"{name.kind.word} {title}".rstrip()


def kind_of(device: Object) -> Kind:
    """How a claim that gets the device holds its GPU."""
    form = attribute(device, "type")
    if device.get("allowMultipleAllocations"):
        return "shared"
    return "partition" if form == "mig" else "whole" if form in (None, "gpu") else "machine"


def capacity_of(device: Object, name: str) -> Decimal | None:
    """A capacity of a device; None if it is not published, or has more digits than any GPU's."""
    published = (device.get("capacity") or {}).get(name)
    return None if published is None else stored_amount(published["value"])


def stored_amount(text: str) -> Decimal | None:
    """A quantity that the API server has stored; None if it has more digits than any of a GPU."""
    try:
        return parse_quantity(text)
    except ValueError:
        return None


def memory_per_gpu(device: Object) -> int | None:
    """The memory in bytes that a device has on each of its GPUs; None if it is not known."""
    memory = capacity_of(device, "memory")
    published = attribute(device, "gpuCount")
    count = 1 if published is None else published
    # The token of a node can publish anything as the number of GPUs. And the GPUs of a device without a
    # product name are of several products: its capacity is their sum, and the parts are unknown.
    if (
        memory is None
        or not isinstance(count, int)
        or count < 1
        or (count > 1 and attribute(device, "productName") is None)
    ):
        return None
    return int(memory) // count


def address_of(device: Object) -> str:
    """The PCI address of a device's GPU, or the device's name if no address is published."""
    return str(attribute(device, _PCI) or device["name"])


def gpus_of(device: Object) -> tuple[PciAddress | str, ...]:
    """The GPUs that a device takes, wholly or in part.

    The device's name says which. If it is not a name that this driver gives, the published PCI address
    counts, and without an address the device counts as a GPU of its own.
    """
    regions = _regions(str(device["name"]))
    if regions:
        return tuple(dict.fromkeys(region.pci for region in regions))
    address = address_of(device)
    try:
        return (PciAddress.parse(address),)
    except ValueError:
        return (address,)


def place_of(device: Object, gpu: PciAddress | str) -> Place | None:
    """The first memory slice of a partition on this GPU, and how many it has; None for anything else."""
    span = next((region.span for region in _regions(str(device["name"])) if region.pci == gpu), None)
    # The number in the name of a vGPU is not a place.
    if span is None or kind_of(device) == "machine":
        return None
    # The consumed counters say how many memory slices it has; else its capacities memorySlice0 and so on;
    # else what the profiles of the MIG User Guide have at least.
    consumed = (name for one in device.get("consumesCounters") or () for name in one.get("counters") or ())
    taken = sum(name.startswith(MEMORY_SLICE) for name in consumed)
    published = sum(name.startswith("memorySlice") for name in device.get("capacity") or ())
    compute = _COMPUTE.match(str(attribute(device, "profile") or ""))
    by_profile = _LEAST_MEMORY_SLICES.get(int(compute[1]), 1) if compute else 1
    return span.start, max(taken or published or by_profile, span.size)


@lru_cache(maxsize=1 << 16)
def _regions(device: str) -> tuple[Region, ...]:
    """The regions of GPUs that a device takes, as its name says."""
    from driver.kinds.registry import KINDS

    # Cached: nodes of one model have the same device names.
    name = KINDS.parse(device)
    return () if name is None else name.regions
