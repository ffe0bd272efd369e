"""Reads from the API which GPUs a node published and who holds them, and draws that as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich import box
from rich.table import Table

from driver.quantity import parse_quantity

GIB = 2**30


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """A published GPU and the pods that hold it; what the slice does not say is None.

    ``form`` is the attribute ``type``: ``gpu`` for a whole one.
    """

    device: str
    index: int | None
    product: str | None
    pci: str | None
    numa_node: int | None
    memory_bytes: int | None
    nvlink_island: str | None
    nvlink_peers: tuple[int, ...]
    pcie_root: str | None = None
    form: str | None = None
    held_by: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The index as people know it from nvidia-smi, else the device's name."""
        return self.device if self.index is None else str(self.index)


def published_gpus(
    slices: Iterable[Mapping[str, Any]], claims: Iterable[Mapping[str, Any]]
) -> tuple[GpuFacts, ...]:
    """The GPUs of one node's slices, in their order, with the pods that their claims are reserved for."""
    holders: dict[str, tuple[str, ...]] = {}
    for claim in claims:
        status = claim.get("status") or {}
        pods = tuple(user["name"] for user in status.get("reservedFor", ()))
        for device in allocated_devices(claim):
            holders[device] = pods
    listed = [device for one in slices for device in one["spec"].get("devices", ())]
    return tuple(replace(_facts(one), held_by=holders.get(one["name"], ())) for one in listed)


def allocated_devices(claim: Mapping[str, Any]) -> list[str]:
    """The names of the devices that a claim was given; none when it is not allocated."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return [str(result["device"]) for result in allocation.get("devices", {}).get("results", ())]


def _facts(listed: Mapping[str, Any]) -> GpuFacts:
    attributes = listed.get("attributes", {})

    def value(name: str) -> Any:
        return next(iter(attributes.get(name, {}).values()), None)

    peers = value("nvlinkPeers")
    memory = listed.get("capacity", {}).get("memory")
    return GpuFacts(
        device=str(listed["name"]),
        index=value("index"),
        product=value("productName"),
        pci=value("resource.kubernetes.io/pciBusID"),
        numa_node=value("numaNode"),
        memory_bytes=None if memory is None else int(parse_quantity(memory["value"])),
        nvlink_island=value("nvlinkDomain"),
        nvlink_peers=tuple(map(int, peers.split(","))) if peers else (),
        pcie_root=value("resource.kubernetes.io/pcieRoot"),
        form=value("type"),
    )


def gpu_table(node: str, gpus: Sequence[GpuFacts]) -> Table:
    """The node as a table of at most 80 columns, with a line between NUMA nodes."""
    products = sorted({gpu.product for gpu in gpus if gpu.product})
    table = Table(title=f"{node}: {len(gpus)} x {', '.join(products) or 'GPU'}", box=box.ROUNDED)
    for heading in ("GPU", "PCI address", "NUMA"):
        table.add_column(heading, no_wrap=True)
    table.add_column("NVLink peers", overflow="fold")
    table.add_column("Memory", justify="right", no_wrap=True)
    table.add_column("Held by", overflow="fold")
    islands = sorted({gpu.nvlink_island for gpu in gpus if gpu.nvlink_island})
    for number, gpu in enumerate(gpus):
        following = gpus[number + 1] if number + 1 < len(gpus) else gpu
        table.add_row(
            gpu.label,
            gpu.pci or "-",
            "-" if gpu.numa_node is None else str(gpu.numa_node),
            _nvlink(gpu, islands),
            "-" if gpu.memory_bytes is None else f"{gpu.memory_bytes / GIB:.0f} GiB",
            ", ".join(gpu.held_by) or "free",
            end_section=following.numa_node != gpu.numa_node,
        )
    return table


def _nvlink(gpu: GpuFacts, islands: Sequence[str]) -> str:
    """The island as a letter and the indexes of the peers: ``A: 0-2,5``."""
    if gpu.nvlink_island is None:
        return "none"
    number = islands.index(gpu.nvlink_island)
    return f"{chr(ord('A') + number)}: {ranges(gpu.nvlink_peers) or 'nobody here'}"


def ranges(numbers: Iterable[int]) -> str:
    """Sorted numbers as people write them: ``0-2,5``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
