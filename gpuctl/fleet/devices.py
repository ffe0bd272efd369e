"""What one published device says of itself: form, taints, memory, and where on which GPU it lies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from driver.devices.device import MEMORY_SLICE
from driver.devices.memory_limits import BY_CGROUP
from driver.devices.region import Region
from driver.devices.sharing import SHARES
from driver.kinds.registry import KINDS
from driver.nvml.pci_address import PciAddress
from kubernetes_rules.quantity import parse_quantity

Object = Mapping[str, Any]

Kind = Literal["whole", "partition", "shared", "machine"]
"""How a part of a GPU is held: all of it, a MIG partition, a share, or for a virtual machine."""

Place = tuple[int, int]
"""The first memory slice of a partition, and how many it has."""

_PCI = "resource.kubernetes.io/pciBusID"
_COMPUTE = re.compile(r"(?:\d+c\.)?(\d+)g\.")
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


def taints_of(device: Object) -> tuple[Taint, ...]:
    """The taints of a device, in the order of its slice."""
    return tuple(
        Taint(str(one["key"]), str(one.get("value") or ""), str(one["effect"]))
        for one in device.get("taints") or ()
    )


def attribute(device: Object, name: str) -> Any:
    """The value of a published attribute, whatever its type; None without it."""
    return next(iter((device.get("attributes") or {}).get(name, {}).values()), None)


def tier_of(device: Object) -> str:
    """The form in which a device is handed out: ``whole``, ``mig 1g.10gb``, ``shared, mps`` and so on.

    A device that is whole for a claim that asks for no amount, and shared for others, is ``fractional``.
    Where the NVIDIA driver holds time-sliced shares to their memory, the name says so. A device that no
    container gets has the name that its kind gives it.
    """
    form, profile = attribute(device, "type") or "gpu", attribute(device, "profile")
    if not device.get("allowMultipleAllocations"):
        return f"mig {profile or '?'}" if form == "mig" else "whole" if form == "gpu" else _own_title(device)
    name = f"mig {profile}, shared" if profile else "fractional" if form == "gpu" else "shared"
    strategy = attribute(device, "sharing")
    held = ", memory held" if attribute(device, "memoryIsolation") == BY_CGROUP else ""
    return f"{name}, {strategy}{held}" if strategy else name


def _own_title(device: Object) -> str:
    """The word of the device's kind, and what distinguishes the device from others of the kind."""
    name = KINDS.parse(str(device.get("name", "")))
    if name is None:
        return str(attribute(device, "type"))
    attributes = {key: attribute(device, key) for key in device.get("attributes") or {}}
    title = name.kind.title(name.unshared, attributes)
    return title if title.startswith(name.kind.word) else f"{name.kind.word} {title}".rstrip()


def kind_of(device: Object) -> Kind:
    """How a claim that gets the device has its GPU."""
    form = attribute(device, "type")
    if device.get("allowMultipleAllocations"):
        return "shared"
    return "partition" if form == "mig" else "whole" if form in (None, "gpu") else "machine"


def shares_of(device: Object) -> int:
    """Into how many shares the device can be divided; 0 where shares are not counted by number."""
    if not device.get("allowMultipleAllocations"):
        return 0
    counted = (device.get("capacity") or {}).get(SHARES)
    return int(parse_quantity(counted["value"])) if counted else 0


def memory_of_one(device: Object) -> int | None:
    """The memory in bytes that a device has of one of its GPUs.

    The capacity of a device over several GPUs is that of all together. None where no memory is published,
    where the number of GPUs makes no sense, and where they are of unlike products, so that nobody knows the
    parts.
    """
    memory = (device.get("capacity") or {}).get("memory")
    told = attribute(device, "gpuCount")
    count = 1 if told is None else told  # any node's token can publish what is no number
    if (
        memory is None
        or not isinstance(count, int)
        or count < 1
        or (count > 1 and attribute(device, "productName") is None)
    ):
        return None
    return int(parse_quantity(memory["value"])) // count


def address_of(device: Object) -> str:
    """The PCI address of a device's GPU, or the device's name where none is published."""
    return str(attribute(device, _PCI) or device["name"])


def gpus_of(device: Object) -> tuple[PciAddress | str, ...]:
    """The GPUs that a device takes or lies on.

    Its name says which. Where the name is none of this driver's, the published address counts, and without
    one the device is a GPU of its own.
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
    """Where a partition lies on this GPU: its first memory slice and how many it has; None for anything else.

    The counters that it consumes say how many it has, else its capacities ``memorySlice0`` and so on, else
    its profile: profiles of the MIG User Guide with as many compute slices have at least so many. The number
    in the name of a vGPU is no place.
    """
    span = next((region.span for region in _regions(str(device["name"])) if region.pci == gpu), None)
    if span is None or kind_of(device) == "machine":
        return None
    consumed = (name for one in device.get("consumesCounters") or () for name in one.get("counters") or ())
    taken = sum(name.startswith(MEMORY_SLICE) for name in consumed)
    told = sum(name.startswith("memorySlice") for name in device.get("capacity") or ())
    compute = _COMPUTE.match(str(attribute(device, "profile") or ""))
    by_profile = _LEAST_MEMORY_SLICES.get(int(compute[1]), 1) if compute else 1
    return span.start, max(taken or told or by_profile, span.size)


@lru_cache(maxsize=1 << 16)
def _regions(device: str) -> tuple[Region, ...]:
    """What a device's name says that it takes; machines of a model have the same names."""
    name = KINDS.parse(device)
    return () if name is None else name.regions
