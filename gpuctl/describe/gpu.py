"""Describes a GPU: its forms, its holders, what is wrong with it, and how it reaches other GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuctl.describe.sections import Section, events_section, fields
from gpuctl.fleet.devices import driver_version_text, meaning
from gpuctl.fleet.gpus import GpuState, Holding, Object
from gpuctl.fleet.memory import bytes_text, held_text
from gpuctl.plan.topology import topology_of
from gpuctl.status.live_picture import bar

_BAR = 64


def gpu_sections(gpu: GpuState, gpus: Sequence[GpuState], events: Sequence[Object] | None) -> list[Section]:
    """The sections about a GPU; of the ``events`` of its node only those about the GPU are shown.

    ``gpus`` are all of the node.
    """
    version = gpu.attributes.get("driverVersion")
    return [
        Section(
            f"GPU {gpu.label} of {gpu.node}",
            fields(
                {
                    "Product": gpu.product,
                    "UUID": gpu.uuid,
                    "PCI address": gpu.pci,
                    "NVIDIA driver": version and driver_version_text(str(version)),
                    "Device": gpu.device,
                    "Memory": bytes_text(gpu.memory_bytes) if gpu.memory_bytes else None,
                    "Health": _health(gpu),
                    "Taken": f"{100 * gpu.used:.0f} %",
                }
            ),
            drawing=bar(gpu, _BAR).plain,
        ),
        Section("Attributes", fields(dict(sorted(gpu.attributes.items())))),
        _forms_section(gpu),
        holders_section((gpu,)),
        taints_section((gpu,)),
        _topology(gpu, gpus),
        events_section(None if events is None else [event for event in events if _is_about(event, gpu)]),
    ]


def _forms_section(gpu: GpuState) -> Section:
    """The forms in which a GPU is offered, and the places of partitions."""
    rows = [
        {
            "form": form.tier,
            "devices": str(form.devices),
            "claims": str(sum(held.tier == form.tier for held in gpu.takers)),
            "starts": ",".join(str(start) for start, _ in form.places) or "-",
            "slices": ",".join(sorted({str(size) for _, size in form.places})) or "-",
        }
        for form in gpu.forms
    ]
    note = f"starts and sizes in memory slices, of {gpu.memory_slices}" if gpu.memory_slices else None
    return Section("Forms", rows=rows, note=note)


def holders_section(gpus: Iterable[GpuState]) -> Section:
    """The claims that hold something of these GPUs."""
    return Section("Held by", rows=[_holding(gpu, held) for gpu in gpus for held in gpu.holdings])


def _holding(gpu: GpuState, held: Holding) -> dict[str, str]:
    place = "" if held.start is None else f" at {held.start}"
    taken = f"{held.tier}{place}" + (f": {held.taken}" if held.taken else "")
    return {
        "claim": held.claim,
        "pods": ", ".join(held.pods) or "-",
        "class": held.device_class or "-",
        "gpu": gpu.label,
        "what": "admin access" if held.admin_access else taken,
        "part": f"{100 * held.part:.0f} %",
        "memory": size_of(held),
        "device": held.device,
        "trouble": held.trouble or "-",
    }


def size_of(held: Holding) -> str:
    """How much a claim has of a GPU, as in ``gpuctl top``; a claim with admin access has nothing."""
    return "-" if held.admin_access else held_text(held.part, held.memory_bytes)


def taints_section(gpus: Iterable[GpuState]) -> Section:
    """What is wrong with these GPUs, what it means, and what to do about it."""
    rows = [
        {
            "gpu": gpu.label,
            "taint": str(seen.taint),
            "devices": f"{seen.devices} of {seen.of_gpu}",
            "since": seen.since or "-",
            "meaning": meaning(seen.taint),
        }
        for gpu in gpus
        for seen in gpu.taints
    ]
    return Section("Taints", rows=rows)


def _health(gpu: GpuState) -> str:
    if gpu.is_sick:
        return "sick: see Taints"
    return "tainted: see Taints" if gpu.taints else "nothing is wrong"


def _topology(gpu: GpuState, gpus: Sequence[GpuState]) -> Section:
    """How this GPU reaches the others of its node."""
    topology = {one.device: one for one in topology_of(gpu.node, gpus).gpus}
    paths = topology.pop(gpu.device)
    rows = [
        {"to": other.label, "path": paths.path_to(device), "pcie": paths.pcie_paths[device]}
        for device, other in topology.items()
    ]
    return Section("Topology", rows=rows)


def _is_about(event: Object, gpu: GpuState) -> bool:
    """Whether an event names the GPU: by address, UUID, the name of a device, or as ``GPU 3``."""
    message = str(event.get("message") or event.get("note") or "")
    names = filter(None, (gpu.pci, gpu.uuid, gpu.device))
    by_index = gpu.index is not None and f"GPU {gpu.index} " in f"{message.replace(':', ' ')} "
    return any(name in message for name in names) or by_index
