"""What a node publishes. It follows from the slices alone, so it is read once while claims come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driver.devices.device import MEMORY_SLICE
from driver.devices.names import gpu_device_name, pool_name
from driver.nvml.pci_address import PciAddress
from gpuctl.fleet.devices import (
    Kind,
    Place,
    Taint,
    address_of,
    attribute,
    driver_version_text,
    gpus_of,
    kind_of,
    memory_per_gpu,
    place_of,
    taints_of,
    tier_of,
)
from gpuctl.fleet.gpus import Form, GpuState, GpuTaint
from kubernetes_rules import selectors
from kubernetes_rules.allocator.held import Held, bare_name, consumption
from kubernetes_rules.allocator.pools import (
    Available,
    Pool,
    available_counters,
    exhausted,
    gather_pools,
    take,
)
from kubernetes_rules.allocator.published import Device, read_slices
from kubernetes_rules.pool_generations import newest_slices
from kubernetes_rules.taints import untolerated_taint

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PoolCounters:
    """The pools of a node as the scheduler sees them now.

    ``problem`` says why nothing can be allocated from one of them, None if all are well. ``devices`` are by
    name, without those of a pool with a problem. ``left`` is what is left of the counters, ``held`` is what
    claims have.
    """

    problem: str | None
    devices: Mapping[str, Device]
    left: Available
    held: Held

    def fits(self, name: str) -> bool:
        """Whether the counters leave room for a device; never for a device of a pool with a problem."""
        return self._has_room(self.left, name)

    def at_once(self, names: Iterable[str]) -> int:
        """How many of these devices have room together, allocated in their order."""
        left, count = dict(self.left), 0
        for name in names:
            if name in self.devices and self.held.is_held(self.devices[name].id):
                count += 1  # a shared device: its first share consumed the counters, further shares do not
            elif self._has_room(left, name):
                take(left, self.devices[name], 1)
                count += 1
        return count

    def claims_left(self, name: str) -> int | None:
        """How many more claims that ask for no amount a shared device has capacity for; None if not shared.

        Raises AllocationFailed for a request policy that makes no sense.
        """
        device = self.devices.get(name)
        if device is None or not device.allow_multiple:
            return None
        taken, driver = self.held.capacity_taken(device.id), device.id.driver
        # Without amounts of its own a claim consumes what the policy of each capacity says.
        room = [
            (device.capacities[one].value.nanos - taken.get(bare_name(driver, one), 0)) // amount.nanos
            for one, amount in consumption(device, {}).items()
            if amount.nanos > 0
        ]
        return max(0, min(room)) if room else None

    def _has_room(self, left: Available, name: str) -> bool:
        device = self.devices.get(name)
        return device is not None and (not device.consumes or exhausted(left, device) is None)


def _pools_of(node: str, slices: Sequence[Object]) -> tuple[Pool, ...]:
    """The pools of one node, read from its slices; raises AllocationFailed for a malformed one."""
    # The scheduler's own way: a pool counts when all of its slices are there and fit together.
    read = read_slices(slices)
    by_pool = {one.pool_id: [other for other in read if other.pool_id == one.pool_id] for one in read}
    return gather_pools(read, selectors.read_node({"metadata": {"name": node}}), by_pool)


def counters_in(pools: Sequence[Pool], held: Held) -> PoolCounters:
    """The pools with what claims hold now."""
    problems = [problem for pool in pools if (problem := pool.incomplete or pool.invalid)]
    devices = {device.id.device: device for pool in pools for device in pool.devices}
    left: Available = {}
    for pool in pools:
        left |= available_counters(pool, held)
    return PoolCounters("; ".join(problems) or None, devices, left, held)


@dataclass(frozen=True, slots=True)
class OnGpu:
    """What a device takes of one GPU: ``part`` of it, from 0 to 1; a partition has a place."""

    gpu: str
    place: Place | None
    part: float


@dataclass(frozen=True, slots=True)
class PublishedDevice:
    """A device that a node publishes.

    ``address`` is its GPU's PCI address, or the device's name if that is not published. ``blocked``: a taint
    keeps claims without tolerations away. ``lies_on`` are its GPUs by the names of their devices.
    """

    pool: str
    name: str
    address: str
    tier: str
    kind: Kind
    taints: tuple[Taint, ...]
    blocked: bool
    lies_on: tuple[OnGpu, ...]
    spec: Object


@dataclass(frozen=True, slots=True)
class WithheldPartitions:
    """A GPU that the node configuration wants in partitions, and why it is not offered in partitions."""

    device: str
    reason: str


@dataclass(frozen=True, slots=True)
class PublishedNode:
    """What a node publishes: its devices, its GPUs without any claims, and its pools."""

    name: str
    product: str | None
    driver_version: str | None
    devices: tuple[PublishedDevice, ...]
    gpus: tuple[GpuState, ...]
    pools: tuple[Pool, ...]
    withheld: tuple[WithheldPartitions, ...]

    @property
    def pool_names(self) -> frozenset[str]:
        """The names of its pools, also of one that it no longer publishes."""
        return frozenset((self.name, pool_name(self.name), *(pool.id.pool for pool in self.pools)))


_Gpu = PciAddress | str


def read_node(name: str, slices: Iterable[Object]) -> PublishedNode:
    """What a node publishes in its slices of this driver. Raises AllocationFailed for a malformed slice.

    GPUs are in the order of their addresses; those without an address come last.
    """
    # Only the newest generation of a pool counts: while a driver replaces slices, old ones are still there.
    current = [one for pool in newest_slices(slices).values() for one in pool]
    current.sort(key=lambda one: str(one["metadata"]["name"]))
    pools = _pools_of(name, current)  # first, since it raises for a malformed slice
    specs = [
        (str(one["spec"]["pool"]["name"]), device)
        for one in current
        for device in one["spec"].get("devices") or ()
    ]
    sets = {str(each["name"]): each for one in current for each in one["spec"].get("sharedCounters") or ()}
    by_gpu: dict[_Gpu, list[Object]] = {}
    for _, device in specs:
        for gpu in gpus_of(device):
            by_gpu.setdefault(gpu, []).append(device)
    measures = {gpu: _measure(sets, gpu, devices) for gpu, devices in by_gpu.items()}
    # A device over several GPUs is listed with each of them.
    version = _first(specs, "driverVersion")
    ordered = sorted(by_gpu, key=lambda gpu: (not isinstance(gpu, PciAddress), str(gpu)))
    return PublishedNode(
        name,
        _first(specs, "productName"),
        version and driver_version_text(version),
        tuple(
            sorted(
                (_device(pool, device, measures) for pool, device in specs),
                key=lambda one: (one.address, one.tier, one.name),
            )
        ),
        tuple(_gpu(name, gpu, by_gpu[gpu], measures[gpu].memory_slices) for gpu in ordered),
        pools,
        tuple(
            WithheldPartitions(str(device["name"]), str(reason))
            for _, device in specs
            if (reason := attribute(device, "migWithheld"))
        ),
    )


def _gpu_name(gpu: _Gpu) -> str:
    return gpu_device_name(gpu) if isinstance(gpu, PciAddress) else gpu


@dataclass(frozen=True, slots=True)
class _Measure:
    """The size of a whole GPU, by which the parts that devices take are measured.

    ``alike`` counts its devices by tier. ``partition_bytes`` is the memory of all its partitions together.
    """

    memory_slices: int
    alike: Counter[str]
    partition_bytes: int


def _measure(sets: Mapping[str, Object], gpu: _Gpu, devices: Sequence[Object]) -> _Measure:
    """Measure a GPU by its counter set and its devices."""
    counters = sets.get(_gpu_name(gpu)) or {}
    counted = sum(name.startswith(MEMORY_SLICE) for name in counters.get("counters") or ())
    places = (place_of(one, gpu) for one in devices)
    # Without counters, a GPU has at least the memory slices up to the end of its last partition.
    slices = counted or max((place[0] + place[1] for place in places if place is not None), default=0)
    partitions = (one for one in devices if attribute(one, "type") == "mig")
    return _Measure(
        slices, Counter(map(tier_of, devices)), sum(memory_per_gpu(one) or 0 for one in partitions)
    )


def _part(device: Object, place: Place | None, measure: _Measure) -> float:
    """How much of its GPU a device takes, from 0 to 1."""
    if place is not None and measure.memory_slices:
        return place[1] / measure.memory_slices
    # As many vGPUs of a type are offered as fit on the GPU.
    if attribute(device, "type") == "vgpu":
        return 1 / measure.alike[tier_of(device)]
    # A partition without a place is measured by the memory of all partitions of the GPU.
    memory = memory_per_gpu(device) if attribute(device, "profile") else None
    return min(1.0, memory / measure.partition_bytes) if memory and measure.partition_bytes else 1.0


def _device(pool: str, device: Object, measures: Mapping[_Gpu, _Measure]) -> PublishedDevice:
    lies_on = []
    for gpu in gpus_of(device):
        place = place_of(device, gpu)
        lies_on.append(OnGpu(_gpu_name(gpu), place, _part(device, place, measures[gpu])))
    return PublishedDevice(
        pool,
        str(device["name"]),
        address_of(device),
        tier_of(device),
        kind_of(device),
        taints_of(device),
        untolerated_taint(device.get("taints") or (), ()) is not None,
        tuple(lies_on),
        device,
    )


def _gpu(node: str, gpu: _Gpu, devices: Sequence[Object], memory_slices: int) -> GpuState:
    name = _gpu_name(gpu)
    places = {str(one["name"]): place_of(one, gpu) for one in devices}
    # The whole GPU says most; if it is not offered, a device that is not a partition, with most attributes.
    leading = next((one for one in devices if one["name"] == name), None) or max(
        devices, key=lambda one: (places[str(one["name"])] is None, len(one.get("attributes") or {}))
    )
    whole = places[str(leading["name"])] is None
    return GpuState(
        node=node,
        device=name,
        index=index if isinstance(index := attribute(leading, "index"), int) else None,
        pci=str(gpu) if isinstance(gpu, PciAddress) else None,
        uuid=_text(attribute(leading, "uuid" if whole else "parentUUID")),
        product=_text(attribute(leading, "productName")),
        memory_bytes=memory_per_gpu(leading) if whole else None,
        memory_slices=memory_slices,
        forms=_forms(devices, places),
        taints=_gpu_taints(devices),
        devices=len(devices),
        tainted=sum(bool(one.get("taints")) for one in devices),
        blocked=all(untolerated_taint(one.get("taints") or (), ()) is not None for one in devices),
        leading=leading,
    )


def _forms(devices: Sequence[Object], places: Mapping[str, Place | None]) -> tuple[Form, ...]:
    found: dict[tuple[str, Kind], list[Object]] = {}
    for one in devices:
        found.setdefault((tier_of(one), kind_of(one)), []).append(one)
    forms = []
    for (tier, kind), members in found.items():
        theirs = {place for one in members if (place := places[str(one["name"])]) is not None}
        forms.append(Form(tier, kind, len(members), tuple(sorted(theirs))))
    return tuple(forms)


def _gpu_taints(devices: Sequence[Object]) -> tuple[GpuTaint, ...]:
    counts: Counter[Taint] = Counter()
    since: dict[Taint, str] = {}
    for device in devices:
        for taint, stored in zip(taints_of(device), device.get("taints") or (), strict=True):
            counts[taint] += 1
            # The API server adds the time, in RFC 3339 and UTC, so that the least text is the earliest.
            added = stored.get("timeAdded")
            if added:
                since[taint] = min(since.get(taint, str(added)), str(added))
    return tuple(
        GpuTaint(taint, number, len(devices), since.get(taint))
        for taint, number in sorted(counts.items(), key=lambda item: str(item[0]))
    )


def _first(devices: Iterable[tuple[str, Object]], name: str) -> str | None:
    return _text(next((value for _, device in devices if (value := attribute(device, name))), None))


def _text(value: Any) -> str | None:
    """The value as a text: a node may publish an attribute with any type."""
    return None if value is None else str(value)
