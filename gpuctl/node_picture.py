"""Reads from the API which GPUs a node published and who holds them, and draws that as a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from driver.names import gpu_device_name, parse_device_name
from driver.quantity import parse_quantity

if TYPE_CHECKING:
    from driver.model import PciAddress

GIB = 2**30
WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """A physical GPU as it is published and the pods that hold it; what the slices do not say is None.

    ``device`` is the name of the GPU as a whole, whether it is offered so or not: ``forms`` are those in
    which it is, with how many devices there are of each: ``(("whole", 1), ("1g.10gb", 7))``. ``held_by``
    names a pod with the partition where it holds only one: ``train (1g.10gb at 6)``.
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
    forms: tuple[tuple[str, int], ...] = ((WHOLE, 1),)
    held_by: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The index as people know it from nvidia-smi, else the device's name."""
        return self.device if self.index is None else str(self.index)

    @property
    def offered_as(self) -> str:
        """The forms in words: ``whole | 7 x 1g.10gb, 3 x 2g.20gb``."""
        parts = ", ".join(f"{count} x {name}" for name, count in self.forms if name != WHOLE)
        return " | ".join(part for part in (WHOLE if dict(self.forms).get(WHOLE) else "", parts) if part)


def published_gpus(
    slices: Iterable[Mapping[str, Any]], claims: Iterable[Mapping[str, Any]]
) -> tuple[GpuFacts, ...]:
    """The physical GPUs behind one node's slices with the pods that their claims are reserved for.

    They are in the order of their PCI addresses; devices whose names this driver did not give come last, each
    by itself.
    """
    holders: dict[str, tuple[str, ...]] = {}
    for claim in claims:
        status = claim.get("status") or {}
        pods = tuple(user["name"] for user in status.get("reservedFor", ()))
        for device in allocated_devices(claim):
            holders[device] = (*holders.get(device, ()), *pods)
    ours: dict[PciAddress, list[Mapping[str, Any]]] = {}
    foreign: list[list[Mapping[str, Any]]] = []
    for device in (device for one in slices for device in one["spec"].get("devices") or ()):
        name = parse_device_name(str(device["name"]))
        if name is None:
            foreign.append([device])
        else:
            ours.setdefault(name.pci, []).append(device)
    grouped = [(gpu_device_name(pci), ours[pci]) for pci in sorted(ours)]
    grouped += [(str(forms[0]["name"]), forms) for forms in foreign]
    return tuple(_facts(name, forms, holders) for name, forms in grouped)


def allocated_devices(claim: Mapping[str, Any]) -> list[str]:
    """The names of the devices that a claim was given; none when it is not allocated."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return [str(result["device"]) for result in allocation.get("devices", {}).get("results", ())]


def _facts(
    name: str, listed: Sequence[Mapping[str, Any]], holders: Mapping[str, tuple[str, ...]]
) -> GpuFacts:
    """One GPU from all devices that are forms of it; the whole one says most of it."""
    whole = next((one for one in listed if one["name"] == name), None)
    attributes = (whole or listed[0]).get("attributes") or {}

    def value(name: str) -> Any:
        return next(iter(attributes.get(name, {}).values()), None)

    peers = value("nvlinkPeers")
    memory = ((whole or {}).get("capacity") or {}).get("memory")
    return GpuFacts(
        device=name,
        index=value("index"),
        product=value("productName"),
        pci=value("resource.kubernetes.io/pciBusID"),
        numa_node=value("numaNode"),
        memory_bytes=None if memory is None else int(parse_quantity(memory["value"])),
        nvlink_island=value("nvlinkDomain"),
        nvlink_peers=tuple(map(int, peers.split(","))) if peers else (),
        pcie_root=value("resource.kubernetes.io/pcieRoot"),
        forms=_forms(name, listed),
        held_by=tuple(_holder(one, pod) for one in listed for pod in holders.get(one["name"], ())),
    )


def _forms(name: str, listed: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, int], ...]:
    """The whole GPU first, then the partitions from small to large, by the first number of their names."""
    counts = Counter(WHOLE if one["name"] == name else _partition(one) for one in listed)
    return tuple(sorted(counts.items(), key=lambda item: (item[0] != WHOLE, _size(item[0]), item[0])))


def _size(form: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"(\d+)(?:c|g|gb)\b", form)))


def _partition(listed: Mapping[str, Any]) -> str:
    """The profile of a partition: as it is published, else as its name has it."""
    published = (listed.get("attributes") or {}).get("profile", {}).get("string")
    name = parse_device_name(str(listed["name"]))
    return str(published or (name.profile if name else None) or listed["name"])


def _holder(listed: Mapping[str, Any], pod: str) -> str:
    name = parse_device_name(str(listed["name"]))
    return pod if name is None or name.profile is None else f"{pod} ({_partition(listed)} at {name.start})"


def gpu_table(node: str, gpus: Sequence[GpuFacts]) -> Table:
    """The node as a table of at most 80 columns: a row for each physical GPU, a line between NUMA nodes.

    The forms in which they are offered have a column where any is offered otherwise than whole.
    """
    products = sorted({gpu.product for gpu in gpus if gpu.product})
    table = Table(title=f"{node}: {len(gpus)} x {', '.join(products) or 'GPU'}", box=box.ROUNDED)
    for heading in ("GPU", "PCI address", "NUMA"):
        table.add_column(heading, no_wrap=True)
    table.add_column("NVLink peers", overflow="fold")
    table.add_column("Memory", justify="right", no_wrap=True)
    partitioned = any(gpu.offered_as != WHOLE for gpu in gpus)
    if partitioned:
        table.add_column("Offered as", overflow="fold")
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
            *([gpu.offered_as.replace(", ", ",\n").replace(" | ", " |\n")] if partitioned else []),
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
