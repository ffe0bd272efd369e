"""What a node publishes, read once: it changes with its slices alone, while claims come and go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.status.fleet import Taint, attribute, tier_of
from gpuctl.status.gpus import partition_parts
from gpuctl.status.pool_counters import pools_of
from kubernetes_rules.allocator.pools import Pool
from kubernetes_rules.allocator.published import Device
from kubernetes_rules.pool_generations import newest_slices
from kubernetes_rules.tolerations import untolerated_taint

Object = Mapping[str, Any]

_PCI = "resource.kubernetes.io/pciBusID"
_USES = {"gpu": "whole", "mig": "partitions", "shared": "shares"}
"""What a GPU is used as while a device of this published type is held; any other is for a machine."""

MACHINE = "machine"


@dataclass(frozen=True, slots=True)
class Form:
    """A device that a node publishes: one form of a GPU.

    ``gpu`` is the GPU's PCI address, or the device's name where that is not published. ``weight`` is the part
    of the GPU that it takes, from 0 to 1. ``use`` is what the GPU is used as while somebody has it.
    ``blocked``: a taint keeps claims away that tolerate none; ``since`` is when the first taint was added.
    """

    pool: str
    name: str
    gpu: str
    tier: str
    use: str
    weight: float
    taints: tuple[Taint, ...]
    blocked: bool
    since: str
    uuid: str | None
    device: Object


@dataclass(frozen=True, slots=True)
class Published:
    """The forms of all GPUs of a node, in the order of their addresses, and its pools.

    ``indexes`` are those of nvidia-smi, by GPU; ``withheld`` says why a GPU is not offered in partitions.
    """

    name: str
    product: str | None
    driver_version: str | None
    forms: tuple[Form, ...]
    indexes: Mapping[str, int]
    pools: tuple[Pool, ...]
    withheld: tuple[tuple[str, str], ...]

    @property
    def pool_names(self) -> frozenset[str]:
        """The names of its pools."""
        return frozenset(pool.id.pool for pool in self.pools)


def published(node: str, slices: Iterable[Object]) -> Published:
    """What a node publishes by its slices of this driver. Raises AllocationFailed for a malformed one."""
    current = [one for pool in newest_slices(slices).values() for one in pool]
    current.sort(key=lambda one: str(one["metadata"]["name"]))
    devices = [
        (str(one["spec"]["pool"]["name"]), device)
        for one in current
        for device in one["spec"].get("devices") or ()
    ]
    pools = pools_of(node, current)
    parsed = {device.id.device: device for pool in pools for device in pool.devices}
    whole, parts = _whole(pools), partition_parts(current)
    forms = sorted(
        (_form(pool, device, parsed.get(str(device["name"])), whole, parts) for pool, device in devices),
        key=lambda form: (form.gpu, form.tier, form.name),
    )
    indexes = {
        gpu_of(device): index for _, device in devices if isinstance(index := attribute(device, "index"), int)
    }
    return Published(
        node,
        _first(devices, "productName"),
        _first(devices, "driverVersion"),
        tuple(forms),
        indexes,
        pools,
        tuple(
            (str(device["name"]), str(reason))
            for _, device in devices
            if (reason := attribute(device, "migWithheld"))
        ),
    )


def gpu_of(device: Object) -> str:
    """The PCI address of a device's GPU, or the device's name where none is published."""
    return str(attribute(device, _PCI) or device["name"])


def taints_of(device: Object) -> tuple[Taint, ...]:
    """The taints of a device, as its slice has them."""
    return tuple(
        Taint(str(one["key"]), str(one.get("value") or ""), str(one["effect"]))
        for one in device.get("taints") or ()
    )


def _form(pool: str, device: Object, parsed: Device | None, whole: Whole, parts: Mapping[str, float]) -> Form:
    kind = str(attribute(device, "type") or "gpu")
    use = "partitions" if attribute(device, "profile") and kind == "shared" else _USES.get(kind, MACHINE)
    if kind == "gpu" and device.get("allowMultipleAllocations"):
        use = "shares"
    uuid, part = attribute(device, "uuid"), parts.get(str(device["name"]))
    if part is None:
        is_part = use == "partitions" or kind == "vgpu"
        part = _weight(gpu_of(device), parsed, whole) if is_part else 1.0
    return Form(
        pool,
        str(device["name"]),
        gpu_of(device),
        tier_of(device),
        use,
        part,
        taints_of(device),
        untolerated_taint(device.get("taints") or (), ()) is not None,
        min((str(one.get("timeAdded") or "") for one in device.get("taints") or ()), default=""),
        str(uuid) if uuid else None,
        device,
    )


@dataclass(frozen=True, slots=True)
class Whole:
    """What all of a GPU is, to measure a part by: its counters by set, and the memory of its partitions."""

    counters: Mapping[str, int]
    partitions: Mapping[str, int]


def _weight(gpu: str, parsed: Device | None, whole: Whole) -> float:
    """By counters where the device consumes some; else by its memory beside that of the GPU's partitions."""
    if parsed is None:
        return 1.0
    counted = sum(whole.counters.get(name, 0) for name, _ in parsed.consumes)
    if counted:
        return min(1.0, sum(nanos for _, taken in parsed.consumes for _, nanos in taken) / counted)
    memory = whole.partitions.get(gpu, 0)
    return min(1.0, _memory(parsed) / memory) if memory else 1.0


def _whole(pools: Iterable[Pool]) -> Whole:
    counters: dict[str, int] = {}
    partitions: dict[str, int] = {}
    for pool in pools:
        counters |= {name: sum(nanos for _, nanos in each) for name, each in pool.counter_sets}
        for device in pool.devices:
            if attribute(device.spec, "type") == "mig":
                gpu = gpu_of(device.spec)
                partitions[gpu] = partitions.get(gpu, 0) + _memory(device)
    return Whole(counters, partitions)


def _memory(device: Device) -> int:
    """The memory that a device has by its capacity, in billionths; 0 where none is published."""
    capacity = device.capacities.get("memory")
    return capacity.value.nanos if capacity else 0


def _first(devices: Iterable[tuple[str, Object]], name: str) -> str | None:
    found = next((value for _, device in devices if (value := attribute(device, name))), None)
    return None if found is None else str(found)
