"""Describes a GPU: its forms, its holders, what is wrong with it, and how it reaches other GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuctl.describe.sections import Section, events_section, fields
from gpuctl.fleet.devices import meaning
from gpuctl.fleet.gpus import GpuState, Holding, Object
from gpuctl.fleet.memory import bytes_text, held_text
from gpuctl.plan.topology import Matrix, label
from gpuctl.status.live_picture import bar

_BAR = 64
_HELD_HEADS = ("claim", "pods", "class", "gpu", "what", "part", "memory", "device", "ready")
_TAINT_HEADS = ("gpu", "taint", "devices", "since", "meaning")


def gpu_sections(gpu: GpuState, matrix: Matrix, events: Sequence[Object] | None) -> list[Section]:
    """The sections about a GPU; of the ``events`` of its node only those about the GPU are shown."""
    attributes = {name: value for name, value in gpu.attributes.items() if value is not None}
    return [
        Section(
            f"GPU {gpu.label} of {gpu.node}",
            fields(
                ("Product", gpu.product),
                ("UUID", gpu.uuid),
                ("PCI address", gpu.pci),
                ("Device", gpu.device),
                ("Memory", bytes_text(gpu.memory_bytes) if gpu.memory_bytes else None),
                ("Health", _health(gpu)),
                ("Taken", f"{100 * gpu.used:.0f} %"),
            ),
            drawing=bar(gpu, _BAR).plain,
        ),
        Section("Attributes", tuple((name, str(value)) for name, value in sorted(attributes.items()))),
        _forms_section(gpu),
        holders_section((gpu,)),
        taints_section((gpu,)),
        _topology(gpu, matrix),
        events_section(None if events is None else [one for one in events if _is_about(one, gpu)]),
    ]


def _forms_section(gpu: GpuState) -> Section:
    """The forms in which a GPU is offered, and the places of partitions."""
    rows = []
    for form in gpu.forms:
        held = sum(one.tier == form.tier and not one.admin_access for one in gpu.holdings)
        starts = ",".join(str(start) for start, _ in form.places)
        sizes = ",".join(sorted({str(size) for _, size in form.places}))
        rows.append((form.tier, str(form.devices), str(held), starts or "-", sizes or "-"))
    note = f"starts and sizes in memory slices, of {gpu.memory_slices}" if gpu.memory_slices else None
    return Section(
        "Forms", heads=("form", "devices", "claims", "starts", "slices"), rows=tuple(rows), note=note
    )


def holders_section(gpus: Iterable[GpuState]) -> Section:
    """The claims that hold something of these GPUs."""
    rows = tuple(_holding(gpu, one) for gpu in gpus for one in gpu.holdings)
    return Section("Held by", heads=_HELD_HEADS, rows=rows)


def _holding(gpu: GpuState, one: Holding) -> tuple[str, ...]:
    place = "" if one.start is None else f" at {one.start}"
    what = (
        "admin access" if one.admin_access else f"{one.tier}{place}" + (f": {one.taken}" if one.taken else "")
    )
    return (
        *(one.claim, ", ".join(one.pods) or "-", one.device_class or "-", gpu.label, what),
        *(f"{100 * one.part:.0f} %", size_of(one)),
        *(one.device, one.trouble or "-"),
    )


def size_of(one: Holding) -> str:
    """How much a claim has of a GPU, as in ``gpuctl top``; a claim with admin access has nothing."""
    return "-" if one.admin_access else held_text(one.part, one.memory_bytes)


def taints_section(gpus: Iterable[GpuState]) -> Section:
    """What is wrong with these GPUs, what it means, and what to do about it."""
    rows = tuple(
        (
            *(gpu.label, str(one.taint), f"{one.devices} of {one.of_gpu}", one.since or "-"),
            meaning(one.taint),
        )
        for gpu in gpus
        for one in gpu.taints
    )
    return Section("Taints", heads=_TAINT_HEADS, rows=rows)


def _health(gpu: GpuState) -> str:
    if gpu.is_sick:
        return "sick: see Taints"
    return "tainted: see Taints" if gpu.taints else "nothing is wrong"


def _topology(gpu: GpuState, matrix: Matrix) -> Section:
    """How this GPU reaches the others of its node."""
    rows: list[tuple[str, ...]] = []
    for one, row in zip(matrix.gpus, matrix.cells, strict=True):
        if one.device == gpu.device:
            pairs = zip(matrix.gpus, row, strict=True)
            rows = [(label(other), str(cell), cell.pcie) for other, cell in pairs if cell.path != "X"]
    return Section("Topology", heads=("to", "path", "pcie"), rows=tuple(rows))


def _is_about(event: Object, gpu: GpuState) -> bool:
    """Whether an event names the GPU: by address, UUID, the name of a device, or as ``GPU 3``."""
    message = str(event.get("message") or event.get("note") or "")
    names = filter(None, (gpu.pci, gpu.uuid, gpu.device))
    by_index = gpu.index is not None and f"GPU {gpu.index} " in f"{message.replace(':', ' ')} "
    return any(name in message for name in names) or by_index
