"""Turns the physical GPUs of a node into the devices that it offers, whole GPUs for now.

Attribute names and types are those of NVIDIA's own driver, so that selectors written for it select
the same; to them come ours. What is not known is left out, never invented.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driver.device_limits import MAX_VALUE_BYTES, is_semantic_version
from driver.errors import ConfigError
from driver.health import taints
from driver.model import Device, Version
from driver.names import gpu_device_name
from driver.topology import nvlink_islands, nvlink_peers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from driver.config import NodeConfig
    from driver.model import AttributeValue, Gpu, Inventory, PciAddress

_VERSION = re.compile(
    r"^(?P<major>\d+)(?:\.(?P<minor>\d+))?(?:\.(?P<patch>\d+))?(?P<rest>-[0-9A-Za-z.-]+)?$", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Withheld:
    """A GPU that is there and not offered, with the reason in words."""

    gpu: Gpu
    reason: str


@dataclass(frozen=True, slots=True)
class Offers:
    """What a node offers, in the order of the PCI addresses, and what it keeps back."""

    devices: tuple[Device, ...]
    withheld: tuple[Withheld, ...]


def node_offers(inventory: Inventory, config: NodeConfig | None = None) -> Offers:
    """The devices of a node: every GPU as a whole, except those in MIG mode and those that a rule hides.

    A GPU in MIG mode runs nothing outside its MIG instances. A GPU with problems stays, with taints.
    A rule of ``config`` that cannot be evaluated for a GPU keeps that GPU back.
    """
    islands = nvlink_islands(inventory.gpus)
    peers = nvlink_peers(inventory.gpus)
    devices: list[Device] = []
    withheld: list[Withheld] = []
    for gpu in sorted(inventory.gpus, key=lambda gpu: gpu.pci):
        reason = _reason_to_withhold(gpu, config)
        if reason is None:
            devices.append(_whole_gpu(gpu, inventory, islands, peers))
        else:
            withheld.append(Withheld(gpu, reason))
    return Offers(tuple(devices), tuple(withheld))


def _reason_to_withhold(gpu: Gpu, config: NodeConfig | None) -> str | None:
    """Why the GPU is not offered as a whole, None when it is."""
    if gpu.mig_enabled:
        return "MIG mode is on, so the GPU cannot be used as a whole"
    try:
        hidden = config is not None and config.offer_of(gpu) == "hidden"
    except ConfigError as error:
        return f"the node configuration does not say what to offer: {error}"
    return "the node configuration hides it" if hidden else None


def _whole_gpu(
    gpu: Gpu,
    inventory: Inventory,
    islands: Mapping[PciAddress, str],
    peers: Mapping[PciAddress, tuple[int, ...]],
) -> Device:
    known = {
        **_physical(gpu, inventory),
        **_links(gpu, islands.get(gpu.pci), peers.get(gpu.pci)),
        "type": "gpu",
        "uuid": gpu.uuid,
        # Nobody else is on a whole GPU, so nobody else's work can reach its memory.
        "sharing": "none",
        "memoryIsolation": "hardware",
        "migCapable": gpu.mig_capable,
        "virtualization": gpu.virtualization,
        "vgpuProfile": _text(gpu.vgpu_profile),
    }
    attributes = {name: value for name, value in sorted(known.items()) if value is not None}
    capacity = {} if gpu.memory_bytes is None else {"memory": gpu.memory_bytes}
    return Device(gpu_device_name(gpu.pci), gpu.pci, attributes, capacity, taints(gpu.problems))


def _physical(gpu: Gpu, inventory: Inventory) -> dict[str, AttributeValue | None]:
    """What any form in which the GPU is offered says of it: model, versions, place on the board."""
    return {
        "productName": _text(gpu.product_name),
        "brand": _text(gpu.brand),
        "architecture": _text(gpu.architecture),
        "cudaComputeCapability": semantic_version(gpu.cuda_compute_capability),
        "driverVersion": semantic_version(inventory.driver_version),
        "cudaDriverVersion": semantic_version(inventory.cuda_driver_version),
        "addressingMode": _text(gpu.addressing_mode),
        "index": gpu.index,
        "numaNode": gpu.numa_node,
        "resource.kubernetes.io/numaNode": gpu.numa_node,
        "resource.kubernetes.io/pciBusID": str(gpu.pci),
        "resource.kubernetes.io/pcieRoot": _text(gpu.pcie_root),
    }


def _links(gpu: Gpu, island: str | None, peers: tuple[int, ...] | None) -> dict[str, AttributeValue | None]:
    """Where the GPU stands in the NVLinks of its node and in a fabric over several nodes."""
    return {
        "nvlinkDomain": island,
        "nvlinkPeers": _text(",".join(map(str, peers))) if peers else None,
        "nvlinkPeerCount": None if peers is None else len(peers),
        "fabricClique": _text(gpu.fabric_clique),
    }


def _text(value: str | None) -> str | None:
    """The value where an attribute can hold it: not empty and at most 64 bytes."""
    return value if value and len(value.encode()) <= MAX_VALUE_BYTES else None


def semantic_version(text: str | None) -> Version | None:
    """A version as NVML prints it in the form of semver: ``550.163.01`` is 550.163.1, ``12.4`` is 12.4.0.

    None when it is unknown, no version, or longer than an attribute can be.
    """
    match = _VERSION.match(text or "")
    if match is None:
        return None
    numbers = ".".join(str(int(match[part] or 0)) for part in ("major", "minor", "patch"))
    version = numbers + (match["rest"] or "")
    usable = len(version) <= MAX_VALUE_BYTES and is_semantic_version(version)
    return Version(version) if usable else None
