"""What a node's slices say of its GPUs as far as partitions go: how each is offered, and in which parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from driver.devices.names import DRIVER_NAME
from driver.kinds.partition.kind import MADE, STATIC
from driver.kinds.registry import KINDS
from driver.nvml.pci_address import PciAddress
from gpuctl.fleet.devices import attribute
from kubernetes_rules.pool_generations import is_complete, newest_slices

Object = Mapping[str, Any]
Mode = Literal["whole", "static", "dynamic", "layout", "unpublished"]


@dataclass(frozen=True, slots=True)
class NodeGpu:
    """A GPU of a node.

    ``mode``: ``static``, an admin's partitions are published; ``whole``, the whole GPU and nothing else;
    ``dynamic`` and ``layout``, the driver makes partitions; ``unpublished``, nothing of it is offered.
    ``partitions`` are the names of the profiles of static ones, sorted.
    """

    pci: PciAddress
    mode: Mode
    product: str | None = None
    index: int | None = None
    mig_capable: bool | None = None
    partitions: tuple[str, ...] = ()


def newest(slices: Iterable[Object], node: str) -> tuple[Object, ...] | None:
    """The slices of a node that count; None while a pool of it is not complete, or there is none."""
    mine = [
        one for one in slices if one["spec"]["driver"] == DRIVER_NAME and one["spec"].get("nodeName") == node
    ]
    pools = newest_slices(mine).values()
    if not pools or not all(is_complete(pool) for pool in pools):
        return None
    return tuple(one for pool in pools for one in pool)


def node_gpus(slices: Sequence[Object]) -> dict[PciAddress, NodeGpu]:
    """The GPUs of one node that its slices name, by their addresses and in their order."""
    forms: dict[PciAddress, list[Object]] = {}
    for device in (device for one in slices for device in one["spec"].get("devices") or ()):
        name = KINDS.parse(str(device["name"]))
        if name is not None and name.pci is not None:
            forms.setdefault(name.pci, []).append(device)
    return {pci: _gpu(pci, forms[pci]) for pci in sorted(forms)}


def _gpu(pci: PciAddress, devices: Sequence[Object]) -> NodeGpu:
    first = devices[0]
    names = [KINDS.parse(str(device["name"])) for device in devices]
    static = [
        str(attribute(device, "profile"))
        for device, name in zip(devices, names, strict=True)
        if name is not None and name.kind is STATIC
    ]
    capable = next(
        (value for device in devices if (value := attribute(device, "migCapable")) is not None), None
    )
    return NodeGpu(
        pci,
        _mode(devices, bool(static)),
        attribute(first, "productName"),
        attribute(first, "index"),
        capable,
        tuple(sorted(static)),
    )


def _mode(devices: Sequence[Object], static: bool) -> Mode:
    if static:
        return "static"
    if any(device.get("consumesCounters") or attribute(device, "migWithheld") for device in devices):
        return "dynamic"
    return (
        "layout" if any(attribute(device, "type") == MADE.attribute_type for device in devices) else "whole"
    )


def is_as_wanted(gpu: NodeGpu | None, wanted: Sequence[str], whole: bool) -> bool:
    """Whether a GPU has exactly the wanted static partitions.

    With none wanted: is it offered ``whole``, or else not at all, since its MIG mode is on.
    """
    if wanted:
        return gpu is not None and gpu.mode == "static" and Counter(gpu.partitions) == Counter(wanted)
    return gpu is not None and gpu.mode == "whole" if whole else gpu is None
