"""Reads from a node's slices how each GPU is offered: whole, or in which MIG partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from driver.devices.names import DRIVER_NAME
from driver.errors import ConfigError
from driver.kinds.partition.kind import MADE, STATIC
from driver.kinds.registry import KINDS
from driver.kube.paths import NODES, object_path
from driver.nvml.pci_address import PciAddress
from gpuctl.cli.cluster import ClusterView
from gpuctl.fleet.devices import Object, attribute
from kubernetes_rules.pool_generations import is_complete, newest_slices

Mode = Literal["whole", "static", "dynamic", "layout", "unpublished"]


@dataclass(frozen=True, slots=True)
class NodeGpu:
    """A GPU of a node.

    ``mode``: ``static``, an admin's partitions are published; ``whole``, the whole GPU and nothing else;
    ``dynamic`` and ``layout``, the driver makes partitions; ``unpublished``, nothing of it is offered.
    ``partitions`` are the profiles of the static partitions, sorted.
    """

    pci: PciAddress
    mode: Mode
    product: str | None = None
    index: int | None = None
    mig_capable: bool | None = None
    partitions: tuple[str, ...] = ()


def read_node(view: ClusterView, node: str) -> tuple[Object, tuple[Object, ...]]:
    """The Node and its slices; raises ApiError, and ConfigError if either is not there."""
    stored = view.found(object_path(NODES, node))
    if stored is None:
        raise ConfigError(f"there is no node {node}", "`kubectl get nodes` lists them")
    slices = complete_slices(view, node)
    if slices is None:
        raise ConfigError(
            f"{node} publishes no complete pool of the driver {DRIVER_NAME}",
            "check that the driver runs there",
        )
    return stored, slices


def complete_slices(view: ClusterView, node: str) -> tuple[Object, ...] | None:
    """The newest slices of a node; None without any, and while a pool is incomplete. Raises ApiError."""
    specs = ((one, one["spec"]) for one in view.slices())
    mine = [one for one, spec in specs if (spec["driver"], spec.get("nodeName")) == (DRIVER_NAME, node)]
    # The slices of a generation are written one by one: until all are there, GPUs would seem to be missing.
    pools = newest_slices(mine).values()
    if not pools or not all(map(is_complete, pools)):
        return None
    return tuple(one for pool in pools for one in pool)


def node_gpus(slices: Sequence[Object]) -> dict[PciAddress, NodeGpu]:
    """The GPUs in the slices of one node, by their addresses and in their order."""
    devices: dict[PciAddress, list[tuple[Object, bool]]] = {}
    for device in (device for one in slices for device in one["spec"].get("devices") or ()):
        name = KINDS.parse(str(device["name"]))
        if name is not None and name.pci is not None:
            devices.setdefault(name.pci, []).append((device, name.kind is STATIC))
    return {pci: _gpu(pci, devices[pci]) for pci in sorted(devices)}


def _gpu(pci: PciAddress, devices: Sequence[tuple[Object, bool]]) -> NodeGpu:
    """The GPU of these devices; each comes with whether it is a static partition."""
    first = devices[0][0]
    static = sorted(str(attribute(device, "profile")) for device, is_static in devices if is_static)
    capable = (attribute(device, "migCapable") for device, _ in devices)
    return NodeGpu(
        pci,
        "static" if static else _mode([device for device, _ in devices]),
        attribute(first, "productName"),
        attribute(first, "index"),
        next((value for value in capable if value is not None), None),
        tuple(static),
    )


def _mode(devices: Sequence[Object]) -> Mode:
    """How a GPU without static partitions is offered."""
    # Counters keep forms of one GPU apart that exclude each other, which only dynamic partitions need.
    if any(device.get("consumesCounters") or attribute(device, "migWithheld") for device in devices):
        return "dynamic"
    made = any(attribute(device, "type") == MADE.attribute_type for device in devices)
    return "layout" if made else "whole"
