"""The GPUs that a node published and the pods that hold them, and a table of both."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rich import box
from rich.table import Table

from driver.kinds.registry import KINDS
from driver.slices.specs import read_devices
from gpuctl.fleet.cluster import views_of
from gpuctl.fleet.devices import attributes, capacity_of, gpus_of
from gpuctl.fleet.gpus import GpuState, Holding
from gpuctl.plan.share_words import STRATEGIES, share_words

GIB = 2**30
WHOLE = "whole"

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """A physical GPU as it is published and the pods that hold it; None for what the slices do not say.

    ``device`` is the name of the whole GPU, whether or not it is offered whole. ``forms`` are the forms in
    which it is offered, with the number of devices: ``(("whole", 1), ("1g.10gb", 7))``; the form of a shared
    GPU is in words: ``MPS: 4 shares of 19.8 GiB``. ``held_by`` names the pods, with what they hold if that is
    not the whole GPU: ``train (1g.10gb at 6)``, ``notebook (shares 1)``. ``shareable_bytes`` is the memory
    that its shares, if there are any, are parts of.
    """

    device: str
    index: int | None
    product: str | None
    pci: str | None
    numa_node: int | None
    memory_bytes: int | None
    nvlink_island: str | None
    nvlink_peers: tuple[int, ...]
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
    slices: Sequence[Mapping[str, Any]], claims: Iterable[Mapping[str, Any]]
) -> tuple[GpuFacts, ...]:
    """The physical GPUs behind one node's slices, with the pods that their claims are reserved for."""
    listed = [device for one in slices for device in one["spec"].get("devices") or ()]
    return tuple(
        _facts(gpu, [device for device in listed if (gpu.pci or gpu.device) in map(str, gpus_of(device))])
        for view in views_of(slices, claims)
        for gpu in view.gpus
    )


def _facts(gpu: GpuState, devices: Sequence[Mapping[str, Any]]) -> GpuFacts:
    """A GPU, by all devices that are forms of it."""
    leading = KINDS.parse(str(gpu.leading["name"]))
    shared = next((one for one in devices if _unshared(one) == gpu.device != one["name"]), {})
    shareable = capacity_of(shared, "memory")
    return GpuFacts(
        device=gpu.device,
        index=gpu.index,
        product=gpu.product,
        pci=gpu.pci,
        numa_node=typed_attribute(gpu, "numaNode", int),
        # One of several vGPUs does not say how much memory its GPU has.
        memory_bytes=gpu.memory_bytes if leading is None or leading.takes_all else None,
        nvlink_island=typed_attribute(gpu, "nvlinkDomain", str),
        nvlink_peers=numbers(gpu, "nvlinkPeers"),
        forms=_forms(gpu.device, devices),
        held_by=tuple(_holder(pod, held) for held in gpu.holdings for pod in held.pods),
        shareable_bytes=None if shareable is None else int(shareable),
    )


def typed_attribute(gpu: GpuState, name: str, kind: type[Value]) -> Value | None:
    """A published attribute; None if it is of another type, since a node may publish anything."""
    value = gpu.attributes.get(name)
    return value if isinstance(value, kind) else None


def numbers(gpu: GpuState, name: str) -> tuple[int, ...]:
    """The numbers of an attribute that is a text with commas; else none."""
    parts = str(gpu.attributes.get(name) or "").split(",")
    return tuple(int(part) for part in parts if re.fullmatch(r"[0-9]+", part))


def _forms(gpu: str, devices: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, int], ...]:
    """The forms with their counts: whole, then shared, then partitions by the numbers in their names."""
    counts = Counter(WHOLE if device["name"] == gpu else _form(device) for device in devices)
    order = {form: (form != WHOLE, not _is_all_of_it(form), _size(form), form) for form in counts}
    return tuple(sorted(counts.items(), key=lambda item: order[item[0]]))


def _is_all_of_it(form: str) -> bool:
    """Whether the form is all of the GPU, not a part."""
    # Passed through to a virtual machine: a GPU can leave the NVIDIA driver only as a whole.
    away = {kind.form for kind in KINDS if kind.leaves_driver}
    shared = tuple(f"{strategy}:" for strategy in STRATEGIES.values())
    return form == WHOLE or form.startswith(shared) or form.split(" ", maxsplit=1)[0] in away


def _form(device: Mapping[str, Any]) -> str:
    """The form in words: how a GPU is shared, or the profile of a partition and how that is shared."""
    devices, _ = read_devices([{"devices": [device]}])
    words = share_words(devices[0]) if devices else None
    name = KINDS.parse(str(device["name"]))
    title = "" if name is None else name.kind.title(name.unshared, attributes(device))
    return " by ".join(part for part in (title, words) if part) or str(device["name"])


def _unshared(device: Mapping[str, Any]) -> str:
    name = KINDS.parse(str(device["name"]))
    return "" if name is None else name.unshared


def _size(form: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"(\d+)(?:c|g|gb)\b", form)))


def _holder(pod: str, held: Holding) -> str:
    place = "" if held.start is None else f" at {held.start}"
    form = "" if held.kind in ("whole", "shared") and not place else held.tier.removeprefix("mig ") + place
    what = ": ".join(part for part in (form, held.taken) if part)
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
