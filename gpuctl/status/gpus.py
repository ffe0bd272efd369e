"""What the GPUs of a node are, one by one: forms, holders with their part of it, taints, place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from driver.devices.device import MEMORY_SLICE
from driver.devices.names import DRIVER_NAME, gpu_device_name
from driver.devices.sharing import SHARES
from driver.kinds.registry import KINDS
from gpuctl.status.fleet import Taint, attribute, tier_of
from kubernetes_rules.allocator.held import consumed_capacity
from kubernetes_rules.quantity import parse_quantity

if TYPE_CHECKING:
    from driver.devices.region import Region
    from driver.nvml.pci_address import PciAddress
    from gpuctl.status.fleet import PublishedNode

Object = Mapping[str, Any]

Kind = Literal["whole", "partition", "shared", "machine"]
"""How a part of a GPU is held: all of it, a MIG partition, a share, or for a virtual machine."""

Place = tuple[int, int]
"""The first memory slice of a partition, and how many it has."""

_COMPUTE = re.compile(r"(?:\d+c\.)?(\d+)g\.")
_LEAST_MEMORY_SLICES = {2: 2, 3: 4, 4: 4, 7: 8}

_PCI = "resource.kubernetes.io/pciBusID"


@dataclass(frozen=True, slots=True)
class Holding:
    """A device that a claim has: all of a GPU, or a part of it.

    ``claim`` is its namespace and name, ``pods`` are those that it is reserved for, ``device_class`` is that
    of its request, None where that is not told. ``part`` is how much of the GPU it has, from 0 to 1.
    ``memory_bytes`` is what it has of the GPU's memory, None where that is not told, or has no bound.
    ``start`` and ``size`` are its place in memory slices, None outside of partitions. ``taken`` says in words
    what it has of a shared device. ``looks_on`` is set for admin access, which takes nothing. ``trouble`` is
    the reason and message of a Ready condition that is not True.
    """

    claim: str
    pods: tuple[str, ...]
    device: str
    tier: str
    kind: Kind
    part: float
    request: str = ""
    device_class: str | None = None
    start: int | None = None
    size: int | None = None
    taken: str = ""
    share_id: str | None = None
    looks_on: bool = False
    trouble: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """Devices of a GPU that are alike: their tier, how many there are, and their places in memory slices.

    ``shares`` is into how many shares each of them can be divided, 0 where shares are not counted by number.
    """

    tier: str
    kind: Kind
    devices: int
    places: tuple[tuple[int, int], ...] = ()
    shares: int = 0


@dataclass(frozen=True, slots=True)
class GpuTaint:
    """A taint, on how many of the GPU's devices it is, and since when as the slice tells."""

    taint: Taint
    devices: int
    of_gpu: int
    since: str | None = None


@dataclass(frozen=True, slots=True)
class GpuState:
    """A physical GPU of a node as it is published; what its slices do not tell is None.

    ``device`` is the name of the GPU as a whole, whether it is offered so or not. ``memory_slices`` is 0
    where it is never cut. ``attributes`` are those of the device that says most.
    """

    node: str
    device: str
    index: int | None
    pci: str | None
    uuid: str | None
    product: str | None
    memory_bytes: int | None
    memory_slices: int
    forms: tuple[Form, ...]
    holdings: tuple[Holding, ...]
    taints: tuple[GpuTaint, ...]
    attributes: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The index as people know it from nvidia-smi, else the device's name."""
        return self.device if self.index is None else str(self.index)

    @property
    def used(self) -> float:
        """How much of it claims have, from 0 to 1."""
        return min(1.0, sum(one.part for one in self.holdings if not one.looks_on))

    @property
    def is_sick(self) -> bool:
        """Whether a taint keeps pods away from one of its devices."""
        return any(one.taint.effect != "None" for one in self.taints)


def gpus_of(node: PublishedNode) -> tuple[GpuState, ...]:
    """The GPUs of a node in the order of their addresses; others, whose names tell none, come last."""
    ours, foreign, sets = _by_gpu(node.slices)
    held = _held(node)
    known = [(gpu_device_name(pci), pci, ours[pci]) for pci in sorted(ours)]
    unknown = [(str(device["name"]), None, [device]) for device in foreign]
    return tuple(_gpu(node.name, *one, sets, held) for one in [*known, *unknown])


def partition_parts(slices: Iterable[Object]) -> dict[str, float]:
    """How much of its GPU each partition of a node is, by memory slices, from 0 to 1; by device name."""
    ours, _, sets = _by_gpu(slices)
    found: dict[str, float] = {}
    for pci, forms in ours.items():
        places = {str(one["name"]): place for one in forms if (place := _place(one, pci)) is not None}
        count = _memory_slices(sets.get(gpu_device_name(pci)), places.values())
        found |= {name: place[1] / count for name, place in places.items()}
    return found


def _by_gpu(
    slices: Iterable[Object],
) -> tuple[dict[PciAddress, list[Object]], list[Object], dict[str, Object]]:
    """The devices on each GPU, those whose names tell of no GPU, and the counter sets by name."""
    ours: dict[PciAddress, list[Object]] = {}
    foreign: list[Object] = []
    sets: dict[str, Object] = {}
    for one in sorted(slices, key=lambda item: str(item["metadata"]["name"])):
        sets |= {str(each["name"]): each for each in one["spec"].get("sharedCounters") or ()}
        for device in one["spec"].get("devices") or ():
            regions = _regions(str(device["name"]))
            for pci in dict.fromkeys(region.pci for region in regions):
                ours.setdefault(pci, []).append(device)
            if not regions:
                foreign.append(device)
    return ours, foreign, sets


def class_of(claim: Object, request: str) -> str | None:
    """The DeviceClass of a request, or of one of its alternatives (``gpus/large``); None if not told."""
    name, _, alternative = request.partition("/")
    requests = ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ()
    for one in requests:
        if one.get("name") != name:
            continue
        wanted = one.get("exactly") or {}
        for other in one.get("firstAvailable") or ():
            if other.get("name") == alternative:
                wanted = other
        found = wanted.get("deviceClassName")
        return None if found is None else str(found)
    return None


_Held = dict[str, list[tuple[Object, Object]]]


def _held(node: PublishedNode) -> _Held:
    """The claims that have each device of the node, each with its result."""
    pools = {str(one["spec"]["pool"]["name"]) for one in node.slices}
    found: _Held = {}
    for claim in node.claims:
        for result in claim["status"]["allocation"].get("devices", {}).get("results") or ():
            if result["driver"] == DRIVER_NAME and result["pool"] in pools:
                found.setdefault(str(result["device"]), []).append((claim, result))
    return found


def _gpu(
    node: str,
    device: str,
    pci: PciAddress | None,
    forms: Sequence[Object],
    sets: Mapping[str, Object],
    held: _Held,
) -> GpuState:
    places = {str(one["name"]): _place(one, pci) for one in forms}
    leading = next((one for one in forms if one["name"] == device), None) or max(
        forms, key=lambda one: (places[str(one["name"])] is None, len(one.get("attributes") or {}))
    )
    slices = _memory_slices(sets.get(device), places.values())
    attributes = {key: attribute(leading, key) for key in leading.get("attributes") or {}}
    whole = places[str(leading["name"])] is None
    return GpuState(
        node=node,
        device=device,
        index=attributes.get("index"),
        pci=str(pci) if pci else attributes.get(_PCI),
        uuid=attributes.get("uuid") if whole else attributes.get("parentUUID"),
        product=attributes.get("productName"),
        memory_bytes=_memory_of_one(leading) if whole else None,
        memory_slices=slices,
        forms=_forms(forms, places),
        holdings=tuple(
            _holding(claim, result, one, places[str(one["name"])], slices)
            for one in forms
            for claim, result in held.get(str(one["name"]), ())
        ),
        taints=_taints(forms),
        attributes=attributes,
    )


@lru_cache(maxsize=1 << 16)
def _regions(device: str) -> tuple[Region, ...]:
    """What a device's name tells that it takes; machines of a model have the same names."""
    name = KINDS.parse(device)
    return () if name is None else name.regions


def _place(device: Object, pci: PciAddress | None) -> Place | None:
    """Where a partition lies on this GPU: its first memory slice and how many it has; None for all of it.

    How many it has tell the counters that it consumes, else its capacities ``memorySlice0`` and so on, else
    its profile: those of the MIG User Guide with as many compute slices have at least so many.
    """
    span = next((region.span for region in _regions(str(device["name"])) if region.pci == pci), None)
    if span is None:
        return None
    consumed = (name for one in device.get("consumesCounters") or () for name in one.get("counters") or ())
    taken = sum(name.startswith(MEMORY_SLICE) for name in consumed)
    told = sum(name.startswith("memorySlice") for name in device.get("capacity") or ())
    compute = _COMPUTE.match(str(attribute(device, "profile") or ""))
    by_profile = _LEAST_MEMORY_SLICES.get(int(compute[1]), 1) if compute else 1
    return span.start, max(taken or told or by_profile, span.size)


def _memory_slices(counters: Object | None, places: Iterable[Place | None]) -> int:
    """How many the GPU has: its counters tell, else the end of the last partition."""
    counted = sum(name.startswith(MEMORY_SLICE) for name in (counters or {}).get("counters") or ())
    return counted or max((place[0] + place[1] for place in places if place is not None), default=0)


def kind_of(device: Object) -> Kind:
    """How who gets the device has its GPU."""
    form = attribute(device, "type")
    if device.get("allowMultipleAllocations"):
        return "shared"
    return "partition" if form == "mig" else "whole" if form in (None, "gpu") else "machine"


def _forms(devices: Sequence[Object], places: Mapping[str, Place | None]) -> tuple[Form, ...]:
    found: dict[tuple[str, Kind], list[Object]] = {}
    for one in devices:
        found.setdefault((tier_of(one), kind_of(one)), []).append(one)
    forms = []
    for (tier, kind), members in found.items():
        theirs = {place for one in members if (place := places[str(one["name"])]) is not None}
        shares = max(map(_shares, members))
        forms.append(Form(tier, kind, len(members), tuple(sorted(theirs)), shares))
    return tuple(forms)


def _shares(device: Object) -> int:
    if not device.get("allowMultipleAllocations"):
        return 0
    counted = (device.get("capacity") or {}).get(SHARES)
    return int(parse_quantity(counted["value"])) if counted else 0


def _holding(claim: Object, result: Object, device: Object, place: Place | None, slices: int) -> Holding:
    metadata, status = claim["metadata"], claim["status"]
    looks_on = bool(result.get("adminAccess"))
    part = 1.0 if place is None or not slices else place[1] / slices
    request = str(result.get("request") or "")
    return Holding(
        claim=f"{metadata.get('namespace') or ''}/{metadata['name']}",
        pods=tuple(str(one["name"]) for one in status.get("reservedFor") or ()),
        device=str(device["name"]),
        tier=tier_of(device),
        kind=kind_of(device),
        part=0.0 if looks_on else part * _shared_part(result, device),
        request=request,
        device_class=class_of(claim, request),
        start=place[0] if place else None,
        size=place[1] if place else None,
        taken=_taken(result),
        share_id=result.get("shareID"),
        looks_on=looks_on,
        trouble=_trouble(status, result),
        memory_bytes=None if looks_on else _memory_bytes(result, device),
    )


def _shared_part(result: Object, device: Object) -> float:
    """How much of a shared device a claim has, by the capacity of which it has most; 1 for all of one."""
    if not device.get("allowMultipleAllocations"):
        return 1.0
    capacity = device.get("capacity") or {}
    parts = []
    for name, amount in consumed_capacity(result).items():
        all_of_it = parse_quantity(capacity[name]["value"]) if name in capacity else 0
        if all_of_it > 0:
            parts.append(float(parse_quantity(amount) / all_of_it))
    return min(1.0, max(parts, default=0.0))


def _memory_bytes(result: Object, device: Object) -> int | None:
    """The memory that a device has of one GPU, or what a share of it was given; None for a share without any.

    Of a share by number the scheduler writes down ``memory: "0"``, the default of the capacity's policy.
    """
    consumed = consumed_capacity(result).get("memory")
    if consumed is not None:
        return int(parse_quantity(consumed)) or None
    return None if device.get("allowMultipleAllocations") else _memory_of_one(device)


def _memory_of_one(device: Object) -> int | None:
    """The memory of a device on one of its GPUs: the capacity of several GPUs is that of all together.

    None where it is not told, and where the GPUs are of unlike products, so that nobody knows the parts.
    """
    memory = (device.get("capacity") or {}).get("memory")
    count = attribute(device, "gpuCount") or 1
    if memory is None or (count > 1 and attribute(device, "productName") is None):
        return None
    return int(parse_quantity(memory["value"])) // count


def _taken(result: Object) -> str:
    """What of a shared device was given: ``shares 1, memory 5Gi``."""
    consumed = sorted(consumed_capacity(result).items(), reverse=True)
    return ", ".join(f"{name} {amount}" for name, amount in consumed if amount != "0")


def _trouble(status: Object, result: Object) -> str | None:
    """Why the device is not ready, as the claim's status says; None where it is, or nothing is said."""
    same = ("driver", "pool", "device", "shareID")
    for entry in status.get("devices") or ():
        if any(entry.get(key) != result.get(key) for key in same):
            continue
        for one in entry.get("conditions") or ():
            if one.get("type") == "Ready" and one.get("status") != "True":
                return ": ".join(filter(None, (one.get("reason"), one.get("message")))) or "not ready"
    return None


def _taints(devices: Sequence[Object]) -> tuple[GpuTaint, ...]:
    counts: Counter[Taint] = Counter()
    since: dict[Taint, str] = {}
    for one in (taint for device in devices for taint in device.get("taints") or ()):
        taint = Taint(str(one["key"]), str(one.get("value") or ""), str(one["effect"]))
        counts[taint] += 1
        if one.get("timeAdded"):
            since[taint] = min(since.get(taint, str(one["timeAdded"])), str(one["timeAdded"]))
    return tuple(
        GpuTaint(taint, number, len(devices), since.get(taint))
        for taint, number in sorted(counts.items(), key=lambda item: str(item[0]))
    )
