"""The GPUs that a node published and the pods that hold them, and a table of both."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table

from driver.devices.names import gpu_device_name, parse_gpu_device_name, unshared_name
from driver.kinds.registry import KINDS
from driver.nvml.pci_address import PciAddress
from driver.slices.specs import read_devices
from gpuctl.fleet.devices import attributes, capacity_of
from gpuctl.fleet.holders import allocated
from gpuctl.plan.share_words import STRATEGIES, share_words

GIB = 2**30
WHOLE = "whole"

Holder = tuple[str, str]
"""A pod, and what it has of a shared device, empty if the device is not shared."""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """A physical GPU as it is published and the pods that hold it; None for what the slices do not say.

    ``nvlink_peer_links`` counts the NVLinks to each of ``nvlink_peers``, empty if that is not published.
    ``shareable_bytes`` is the memory that its shares, if there are any, are parts of. ``pcie_switches`` are
    the ports of PCIe switches above the GPU, from the root down; GPUs below the same switch have the same.

    ``device`` is the name of the whole GPU, whether or not it is offered whole. ``forms`` are the forms in
    which it is offered, with the number of devices: ``(("whole", 1), ("1g.10gb", 7))``; the form of a shared
    GPU is in words: ``MPS: 4 shares of 19.8 GiB``. ``held_by`` names the pods, with what they hold if that is
    not the whole GPU: ``train (1g.10gb at 6)``, ``notebook (shares 1)``.
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
    pcie_switches: tuple[str, ...] = ()
    nvlink_peer_links: tuple[int, ...] = ()
    cpu_affinity: str | None = None
    forms: tuple[tuple[str, int], ...] = ((WHOLE, 1),)
    held_by: tuple[str, ...] = ()
    shareable_bytes: int | None = None

    @property
    def label(self) -> str:
        """The index that nvidia-smi shows, else the device's name."""
        return self.device if self.index is None else str(self.index)

    @property
    def offered_as(self) -> str:
        """The forms in words: ``whole | MPS: 4 shares of 19.8 GiB | 7 x 1g.10gb, 3 x 2g.20gb``."""
        alone = [name for name, _ in self.forms if _is_all_of_it(name)]
        parts = ", ".join(f"{count} x {name}" for name, count in self.forms if not _is_all_of_it(name))
        return " | ".join((*alone, parts) if parts else alone)


def published_gpus(
    slices: Iterable[Mapping[str, Any]], claims: Iterable[Mapping[str, Any]]
) -> tuple[GpuFacts, ...]:
    """The physical GPUs behind one node's slices with the pods that their claims are reserved for.

    They are in the order of their PCI addresses; each device with a name that this driver does not give comes
    last, as a GPU of its own.
    """
    holders: dict[str, tuple[Holder, ...]] = {}
    for claim in claims:
        for one in allocated(claim):
            holders[one.device] = (*holders.get(one.device, ()), *((pod, one.taken) for pod in one.pods))
    ours: dict[PciAddress, list[Mapping[str, Any]]] = {}
    foreign: list[list[Mapping[str, Any]]] = []
    for device in (device for one in slices for device in one["spec"].get("devices") or ()):
        name = KINDS.parse(str(device["name"]))
        if name is None or not name.regions:
            foreign.append([device])
            continue
        for region in name.regions:
            ours.setdefault(region.pci, []).append(device)
    grouped = [(gpu_device_name(pci), ours[pci]) for pci in sorted(ours)]
    grouped += [(str(forms[0]["name"]), forms) for forms in foreign]
    return tuple(_facts(name, forms, holders) for name, forms in grouped)


def _facts(
    name: str, listed: Sequence[Mapping[str, Any]], holders: Mapping[str, tuple[Holder, ...]]
) -> GpuFacts:
    """A GPU, by all devices that are forms of it."""
    # The whole GPU says most about it, then a shared one, then any device that takes all of it.
    whole = (
        next((one for one in listed if one["name"] == name), None)
        or next((one for one in listed if unshared_name(str(one["name"])) == name), None)
        or next((one for one in listed if _has_one_gpu(one)), None)
    )
    published = (whole or listed[0]).get("attributes") or {}

    def text(name: str) -> str | None:
        return (published.get(name) or {}).get("string")

    def number(name: str) -> int | None:
        return (published.get(name) or {}).get("int")

    pci = text("resource.kubernetes.io/pciBusID")
    if pci is not None:
        pci = str(parse_gpu_device_name(name) or pci)  # a device of several GPUs publishes that of the first
    switches = text("pcieSwitches")
    # With listAttributes in the node configuration the peers are a list, and a mesh is the first of one.
    peers = tuple((published.get("nvlinkPeers") or {}).get("ints") or ()) or _numbers(text("nvlinkPeers"))
    shared = next((one for one in listed if name != one["name"] and unshared_name(one["name"]) == name), None)
    return GpuFacts(
        device=name,
        index=number("index"),
        product=text("productName"),
        pci=pci,
        numa_node=number("numaNode"),
        memory_bytes=_memory_bytes(whole),
        shareable_bytes=_memory_bytes(shared),
        nvlink_island=text("nvlinkDomain"),
        nvlink_peers=peers,
        pcie_root=text("resource.kubernetes.io/pcieRoot"),
        pcie_switches=tuple(switches.split("/")) if switches else (),
        nvlink_peer_links=_links(text("nvlinkPeerLinks"), len(peers)),
        cpu_affinity=text("cpuAffinity"),
        forms=_forms(name, listed),
        held_by=tuple(_holder(one, *holder) for one in listed for holder in holders.get(one["name"], ())),
    )


def _memory_bytes(device: Mapping[str, Any] | None) -> int | None:
    memory = capacity_of(device or {}, "memory")
    return None if memory is None else int(memory)


def _links(published: str | None, peers: int) -> tuple[int, ...]:
    """The number of NVLinks to each peer; empty if it is not known."""
    # One number is published if it is the same for all peers.
    counts = _numbers(published)
    counts = counts * peers if len(counts) == 1 else counts
    return counts if len(counts) == peers else ()


def _numbers(published: str | None) -> tuple[int, ...]:
    """The numbers of a list with commas; empty for anything else, since a node may publish any text."""
    parts = published.split(",") if published else []
    return tuple(map(int, parts)) if all(part.isascii() and part.isdecimal() for part in parts) else ()


def _forms(name: str, listed: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, int], ...]:
    """The forms with their counts: whole, then shared, then partitions by the numbers in their names."""
    counts = Counter(WHOLE if one["name"] == name else _form(one) for one in listed)
    order = {form: (form != WHOLE, not _is_all_of_it(form), _size(form), form) for form in counts}
    return tuple(sorted(counts.items(), key=lambda item: order[item[0]]))


def _is_all_of_it(form: str) -> bool:
    """Whether the form is all of the GPU, not a part."""
    # Passed through to a virtual machine: a GPU can leave the NVIDIA driver only as a whole.
    away = {kind.form for kind in KINDS if kind.leaves_driver}
    shared = tuple(f"{strategy}:" for strategy in STRATEGIES.values())
    return form == WHOLE or form.startswith(shared) or form.split(" ", maxsplit=1)[0] in away


def _has_one_gpu(listed: Mapping[str, Any]) -> bool:
    """Whether the device is all of one GPU, so that its memory is the GPU's."""
    name = KINDS.parse(str(listed["name"]))
    return name is not None and name.takes_all and len(name.regions) == 1


def _form(listed: Mapping[str, Any]) -> str:
    """The form in words: how a GPU is shared, or the profile of a partition and how that is shared."""
    devices, _ = read_devices([{"devices": [listed]}])
    words = share_words(devices[0]) if devices else None
    title = _title(listed)
    return " by ".join(part for part in (title, words) if part) or str(listed["name"])


def _size(form: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"(\d+)(?:c|g|gb)\b", form)))


def _title(listed: Mapping[str, Any]) -> str:
    """The title that the device's kind gives it; empty for a GPU, and for a device of another driver."""
    name = KINDS.parse(str(listed["name"]))
    return "" if name is None else name.kind.title(name.unshared, attributes(listed))


def _holder(listed: Mapping[str, Any], pod: str, taken: str) -> str:
    name = KINDS.parse(str(listed["name"]))
    position = "" if name is None else name.kind.position(name.unshared)
    place = " ".join(part for part in (_title(listed), position) if part)
    what = ": ".join(part for part in (place, taken) if part)
    return f"{pod} ({what})" if what else pod


def gpu_table(node: str, gpus: Sequence[GpuFacts]) -> Table:
    """The node as a table of at most 80 columns: a row for each physical GPU, a line between NUMA nodes.

    The column of the forms is left out if all GPUs are offered whole and in no other form.
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
    return f"{chr(ord('A') + number)}: {ranges(gpu.nvlink_peers) or 'none here'}"


def ranges(numbers: Iterable[int]) -> str:
    """The numbers, sorted, as people write them: ``0-2,5``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
