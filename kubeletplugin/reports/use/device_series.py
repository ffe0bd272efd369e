"""The series of the devices that claims have, and of the GPUs below them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from driver.process.metrics.table import Reading
from kubeletplugin.reports.use.amounts import (
    allocated_bytes,
    profile_of,
    share_ratio,
    used_bytes,
    utilisation,
)
from kubeletplugin.reports.use.attributed import Attributed, attributed
from kubeletplugin.reports.use.node_use import is_part

if TYPE_CHECKING:
    from driver.hardware.gpu import Gpu
    from kubeletplugin.claims.journal.entry import Entry, HeldDevice
    from kubeletplugin.devices.kinds.kind import HeldKinds
    from kubeletplugin.reports.use.node_use import Listed, NodeUse

USE_SERIES = (
    "gpu_dra_device_info",
    "gpu_dra_device_memory_allocated_bytes",
    "gpu_dra_device_memory_used_bytes",
    "gpu_dra_device_share_ratio",
    "gpu_dra_device_utilization_ratio",
    "gpu_dra_container_gpu_memory_used_bytes",
    "gpu_dra_gpu_info",
    "gpu_dra_gpu_memory_total_bytes",
    "gpu_dra_gpu_memory_allocated_bytes",
    "gpu_dra_gpu_memory_used_bytes",
    "gpu_dra_gpu_utilization_ratio",
    "gpu_dra_gpu_power_watts",
    "gpu_dra_gpu_power_limit_watts",
    "gpu_dra_gpu_temperature_celsius",
)

_SHARING = {"TimeSlicing": "time-slicing", "MPS": "mps"}


class UseSeries:
    """Tells of the claims of one node; ``published_memory(device)`` is what the node's slices say."""

    def __init__(self, kinds: HeldKinds, published_memory: Callable[[str], int | None]) -> None:
        self._kinds = kinds
        self._published_memory = published_memory

    def readings(
        self, entries: Iterable[Entry], gpus: Iterable[Gpu], use: NodeUse, listed: Listed
    ) -> Iterator[Reading]:
        """Everything that is known now of these live claims, and of the GPUs that NVML lists."""
        by_pci = {str(gpu.pci): gpu for gpu in gpus}
        devices = [(entry, held) for entry in entries for held in entry.devices]
        owners = attributed((held for _, held in devices), use, listed)
        allocated: dict[str, list[int | None]] = {pci: [] for pci in by_pci}
        for entry, held in devices:
            labels = self._labels(entry, held, listed)
            memory_bytes = allocated_bytes(held, self._kinds, self._published_memory, by_pci)
            for pci in held.gpus if not held.admin_access else ():
                whole = len(held.gpus) > 1 and pci in by_pci
                allocated.setdefault(pci, []).append(by_pci[pci].memory_bytes if whole else memory_bytes)
            yield from self._infos(held, labels, by_pci)
            amounts = {
                "memory_allocated_bytes": memory_bytes,
                "memory_used_bytes": used_bytes(entry, held, use, owners, listed),
                "share_ratio": share_ratio(held, self._kinds, memory_bytes, by_pci),
                "utilization_ratio": utilisation(held, use, owners, listed),
            }
            for name, amount in amounts.items():
                if amount is not None:
                    yield Reading(f"gpu_dra_device_{name}", labels, amount)
            yield from _containers(held, labels, owners)
        for pci, gpu in by_pci.items():
            yield from _of_gpu(pci, gpu, use, allocated[pci])

    def _labels(self, entry: Entry, held: HeldDevice, listed: Listed) -> dict[str, str]:
        pods = {name.pod for name in listed.get(held.cdi_device, ())}
        kind, share = self._kinds.of(held), held.share
        return {
            "claim_namespace": entry.namespace,
            "claim": entry.name,
            "pod": pods.pop() if len(pods) == 1 else "",
            "class": held.device_class,
            "kind": _SHARING[share.strategy] if share is not None and is_part(held) else self._word(held),
            "device": held.allocated_name,
            "uuid": kind.cuda_uuid(held),
            "share_id": held.share_id or "",
        }

    def _word(self, held: HeldDevice) -> str:
        return self._kinds.of(held).offered.word if self._kinds.knows(held) else "unknown"

    def _infos(
        self, held: HeldDevice, labels: Mapping[str, str], gpus: Mapping[str, Gpu]
    ) -> Iterator[Reading]:
        profile = profile_of(held, self._kinds)
        for pci in held.gpus or ("",):
            uuid = gpus[pci].uuid if pci in gpus else held.uuid if pci == held.pci else ""
            more = {"pool": held.pool, "gpu_uuid": uuid, "pci_bus_id": pci, "profile": profile}
            yield Reading("gpu_dra_device_info", {**labels, **more}, 1)


def _containers(held: HeldDevice, labels: Mapping[str, str], owners: Attributed) -> Iterator[Reading]:
    of_device = owners.devices.get(held.cdi_device)
    for name, amount in sorted(of_device.containers.items(), key=str) if of_device is not None else ():
        if amount is not None:
            kept = {key: labels[key] for key in ("claim_namespace", "claim", "device", "uuid", "share_id")}
            whose = {**kept, "pod": name.pod, "container": name.container}
            yield Reading("gpu_dra_container_gpu_memory_used_bytes", whose, amount)


def _of_gpu(pci: str, gpu: Gpu, use: NodeUse, allocated: list[int | None]) -> Iterator[Reading]:
    labels = {"uuid": gpu.uuid, "pci_bus_id": pci}
    yield Reading("gpu_dra_gpu_info", {**labels, "product": gpu.product_name or ""}, 1)
    known = [one for one in allocated if one is not None]
    told = use.gpus.get(pci)
    amounts: dict[str, float | None] = {
        "memory_total_bytes": gpu.memory_bytes,
        "memory_allocated_bytes": sum(known) if len(known) == len(allocated) else None,
    }
    if told is not None:
        amounts |= {
            "memory_used_bytes": None if told.memory is None else told.memory.used_bytes,
            "utilization_ratio": None if told.utilisation is None else told.utilisation.compute,
            "power_watts": _thousandth(told.power_milliwatts),
            "power_limit_watts": _thousandth(told.power_limit_milliwatts),
            "temperature_celsius": told.temperature_celsius,
        }
    for name, amount in amounts.items():
        if amount is not None:
            yield Reading(f"gpu_dra_gpu_{name}", labels, amount)


def _thousandth(amount: int | None) -> float | None:
    return None if amount is None else amount / 1000
