"""Finds whose processes use a GPU: by their containers, and the devices that the kubelet lists for these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubeletplugin.kubelet.wire.container_name import ContainerName
from kubeletplugin.reports.use.node_use import Listed, NodeUse, instance_of

if TYPE_CHECKING:
    from driver.nvml.use.calls import ProcessUse
    from kubeletplugin.claims.journal.entry import HeldDevice


@dataclass(slots=True)
class OfDevice:
    """The processes of one device of a claim; the memory of a container is None where a part is not known."""

    containers: dict[ContainerName, int | None] = field(default_factory=dict)
    pids: dict[str, set[int]] = field(default_factory=dict)

    def add(self, pci: str, name: ContainerName, process: ProcessUse) -> None:
        """Count a process of a container on the GPU at this address."""
        before, more = self.containers.get(name, 0), process.memory_bytes
        self.containers[name] = None if before is None or more is None else before + more
        self.pids.setdefault(pci, set()).add(process.pid)


@dataclass(frozen=True, slots=True)
class Attributed:
    """The processes of devices, by CDI device; ``unknown`` are GPUs with a process of nobody knows whom."""

    devices: Mapping[str, OfDevice]
    unknown: frozenset[str]


def attributed(held: Iterable[HeldDevice], use: NodeUse, listed: Listed) -> Attributed:
    """Who of the devices' containers uses the GPUs.

    A container with several devices on a GPU, or on a partition, counts for the first of them: NVML does not
    tell by which of them a process came there.
    """
    on_gpu: dict[str, list[HeldDevice]] = {}
    for one in held:
        for pci in one.gpus:
            on_gpu.setdefault(pci, []).append(one)
    devices: dict[str, OfDevice] = {}
    unknown: set[str] = set()
    for pci, reading in use.gpus.items():
        for process in reading.processes or ():
            if process.pid not in use.containers:
                unknown.add(pci)
                continue
            name = use.containers[process.pid]
            owner = None if name is None else _owner(on_gpu.get(pci, ()), name, process, listed)
            if name is not None and owner is not None:
                devices.setdefault(owner.cdi_device, OfDevice()).add(pci, name, process)
    return Attributed(devices, frozenset(unknown))


def _owner(
    held: Iterable[HeldDevice], name: ContainerName, process: ProcessUse, listed: Listed
) -> HeldDevice | None:
    at = None
    if process.gpu_instance is not None and process.compute_instance is not None:
        at = process.gpu_instance, process.compute_instance
    return next(
        (one for one in held if name in listed.get(one.cdi_device, ()) and instance_of(one) == at), None
    )
