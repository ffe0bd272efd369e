"""Lays devices out over ResourceSlice specs (resource.k8s.io/v1), reads them back, and compares specs.

A spec here has everything except ``pool.generation``, which the publisher sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

from driver.devices.device import (
    AttributeValue,
    CounterSet,
    Device,
    RequestPolicy,
    Taint,
    Version,
    attribute_json,
)
from driver.devices.limits import consumption_faults, counter_set_faults, device_faults, is_pool_name
from driver.devices.names import DRIVER_NAME, parse_gpu_device_name
from driver.errors import ConfigError
from driver.kinds.registry import KINDS
from kubernetes_rules.quantity import format_bytes, parse_quantity

Spec = dict[str, Any]

_TaintIdentity = tuple[Any, ...]
TaintTimes = dict[_TaintIdentity, str]
"""``timeAdded`` of taints, by device, key, value and effect."""

_Item = TypeVar("_Item")

# The API allows 128 devices in a slice, but only 64 if one of them has taints or consumes counters. A taint
# may come at any time, and it must not move devices from slice to slice.
DEVICES_PER_SLICE = 64

COUNTER_SETS_PER_SLICE = 8

_SCALARS = ("bool", "int", "string")


@dataclass(frozen=True, slots=True)
class Rejected:
    """A device that the API server would refuse, and why."""

    device: Device
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The specs of a pool's slices in their order, at least one, and the devices that were left out."""

    specs: tuple[Spec, ...]
    rejected: tuple[Rejected, ...]


def lay_out(
    devices: Iterable[Device],
    *,
    pool: str,
    node: str = "",
    node_selector: Mapping[str, Any] | None = None,
    driver: str = DRIVER_NAME,
    counter_sets: Iterable[CounterSet] = (),
) -> Layout:
    """The slices of a pool: counter sets, 8 in each, then devices in the given order, 64 in each.

    The devices are on ``node``, or on the nodes that ``node_selector`` selects.

    A device is left out if it breaks a limit of the API, has the name of another one, or consumes counters
    that do not exist. So is a counter set that no remaining device uses. Raises ConfigError if the pool's
    name is invalid.
    """
    if not is_pool_name(pool):
        raise ConfigError(f"{pool!r} cannot be the name of a pool", "check --node-name")
    usable: dict[str, CounterSet] = {}
    for counter_set in counter_sets:
        if not counter_set_faults(counter_set):
            usable.setdefault(counter_set.name, counter_set)
    accepted, rejected = _sorted_out(devices, usable, driver)
    used = {name for device in accepted for name in device.consumed_sets}
    # A slice has either counter sets or devices, never both. Those with counter sets come first.
    parts: list[Spec] = [
        {"sharedCounters": [_counter_set_json(counter_set) for counter_set in chunk]}
        for chunk in _chunks([one for one in usable.values() if one.name in used], COUNTER_SETS_PER_SLICE)
    ]
    parts += [
        {"devices": [_device_json(device) for device in chunk]}
        for chunk in _chunks(accepted, DEVICES_PER_SLICE)
    ]
    # Without devices, one empty slice shows that the driver is there.
    parts = parts or [{}]
    where = {"nodeName": node} if node_selector is None else {"nodeSelector": node_selector}
    head: Spec = {"driver": driver, **where}
    specs = tuple(
        {**head, "pool": {"name": pool, "resourceSliceCount": len(parts)}, **part} for part in parts
    )
    return Layout(specs, rejected)


def _sorted_out(
    devices: Iterable[Device], counter_sets: Mapping[str, CounterSet], driver: str
) -> tuple[list[Device], tuple[Rejected, ...]]:
    """The devices that can be published, in their order, and the rejected ones."""
    accepted: dict[str, Device] = {}
    rejected: list[Rejected] = []
    for device in devices:
        reasons = device_faults(device, driver) + consumption_faults(device, counter_sets)
        # The API server compares names only within a slice; the scheduler refuses a pool with a name twice.
        if device.name in accepted:
            reasons += (f"another device has the name {device.name!r}",)
        if reasons:
            rejected.append(Rejected(device, reasons))
        else:
            accepted[device.name] = device
    return list(accepted.values()), tuple(rejected)


def _chunks(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _counter_set_json(counter_set: CounterSet) -> dict[str, Any]:
    return {"name": counter_set.name, "counters": _amounts_json(counter_set.counters)}


def _amounts_json(counters: Mapping[str, int]) -> dict[str, Any]:
    return {name: {"value": format_bytes(amount)} for name, amount in sorted(counters.items())}


def _device_json(device: Device) -> dict[str, Any]:
    result: dict[str, Any] = {"name": device.name}
    consumed = device.consumed_sets
    if device.attributes:
        result["attributes"] = {
            name: attribute_json(value) for name, value in sorted(device.attributes.items())
        }
    if device.capacity:
        result["capacity"] = _amounts_json(device.capacity)
    if device.policies:
        result["allowMultipleAllocations"] = True
        for name, policy in device.policies.items():
            result["capacity"][name]["requestPolicy"] = _policy_json(policy)
    if consumed:
        result["consumesCounters"] = [
            {"counterSet": name, "counters": _amounts_json(taken)} for name, taken in consumed.items()
        ]
    if device.taints:
        result["taints"] = [_taint_json(taint) for taint in device.taints]
    return result


def _policy_json(policy: RequestPolicy) -> dict[str, Any]:
    default = format_bytes(policy.default)
    if policy.step is None:
        return {"default": default, "validValues": [default]}
    steps = {"min": format_bytes(policy.minimum), "step": format_bytes(policy.step)}
    return {"default": default, "validRange": steps}


def _taint_json(taint: Taint) -> dict[str, Any]:
    known = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    return {name: text for name, text in known.items() if text}


def read_devices(specs: Iterable[Mapping[str, Any]]) -> tuple[tuple[Device, ...], tuple[CounterSet, ...]]:
    """The devices and counter sets of a pool from the specs of its slices, in their order.

    Devices with names that this driver does not give are left out. A partition without counters gets a span
    of one memory slice at its start, since its slice does not say how many it has.
    """
    listed = list(specs)
    devices = [_read_device(one) for spec in listed for one in spec.get("devices") or []]
    counter_sets = [_read_counter_set(one) for spec in listed for one in spec.get("sharedCounters") or []]
    return tuple(one for one in devices if one), tuple(one for one in counter_sets if one)


def _read_device(stored: Mapping[str, Any]) -> Device | None:
    name = KINDS.parse(stored["name"])
    if name is None:
        return None
    attributes = {key: _read_attribute(value) for key, value in (stored.get("attributes") or {}).items()}
    first, *others = stored.get("consumesCounters") or [{}]
    consumes = _read_amounts(first.get("counters"))
    regions = name.kind.stored(name.unshared, consumes)
    region = regions[0] if regions else None
    return Device(
        stored["name"],
        region.pci if region else None,
        {key: value for key, value in attributes.items() if value is not None},
        _read_amounts(stored.get("capacity")),
        tuple(
            Taint(taint["key"], taint.get("value") or "", taint["effect"])
            for taint in stored.get("taints") or []
        ),
        region.span if region else None,
        first.get("counterSet", ""),
        consumes,
        _read_policies(stored),
        regions[1:],
        {one.get("counterSet", ""): _read_amounts(one.get("counters")) for one in others},
    )


def _read_policies(stored: Mapping[str, Any]) -> dict[str, RequestPolicy]:
    if not stored.get("allowMultipleAllocations"):
        return {}
    capacity = stored.get("capacity") or {}
    return {
        name: _read_policy(amount["requestPolicy"])
        for name, amount in capacity.items()
        if amount.get("requestPolicy")
    }


def _read_policy(stored: Mapping[str, Any]) -> RequestPolicy:
    def amount(holder: Mapping[str, Any], field: str) -> int:
        return int(parse_quantity(holder.get(field) or "0"))

    steps = stored.get("validRange") or {}
    step = amount(steps, "step") if steps.get("step") else None
    return RequestPolicy(amount(stored, "default"), amount(steps, "min"), step)


def _read_counter_set(stored: Mapping[str, Any]) -> CounterSet | None:
    pci = parse_gpu_device_name(stored["name"])
    return None if pci is None else CounterSet(stored["name"], pci, _read_amounts(stored.get("counters")))


def _read_attribute(stored: Mapping[str, Any]) -> AttributeValue | None:
    """The value; None for a type that this driver does not publish."""
    if "version" in stored:
        return Version(stored["version"])
    for kind in _SCALARS:
        if kind in stored:
            value: AttributeValue = stored[kind]
            return value
    return None


def _read_amounts(stored: Mapping[str, Any] | None) -> dict[str, int]:
    # An amount with more digits than any of a GPU is not of this driver, and is left out.
    amounts = {name: _canonical_quantity(amount["value"]) for name, amount in (stored or {}).items()}
    return {name: int(amount) for name, amount in amounts.items() if isinstance(amount, Decimal)}


def same_spec(wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    """Whether the stored spec means the same as the wanted one, without ``pool.generation``.

    Quantities may be written differently, empty fields may be absent, and ``timeAdded`` of taints, which the
    server fills in, does not count. The order of devices does.
    """
    # The API server mostly stores a device as it was sent, and then nothing has to be parsed.
    devices, others = wanted.get("devices") or [], stored.get("devices") or []
    return (
        len(devices) == len(others)
        and all(
            one == other or _canonical_device(one) == _canonical_device(other)
            for one, other in zip(devices, others, strict=True)
        )
        and _canonical_rest(wanted) == _canonical_rest(stored)
    )


def canonical_devices(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The devices of a spec in a form in which devices with the same meaning are ``==``."""
    return [_canonical_device(device) for device in spec.get("devices") or []]


def _canonical_rest(spec: Mapping[str, Any]) -> dict[str, Any]:
    pool = {name: value for name, value in (spec.get("pool") or {}).items() if name != "generation"}
    apart = ("pool", "devices", "sharedCounters")
    rest = {name: value for name, value in spec.items() if name not in apart and value}
    counter_sets = [_canonical_amounts(one, "counters") for one in spec.get("sharedCounters") or []]
    return {**rest, "pool": pool, "sharedCounters": counter_sets}


def _canonical_device(device: Mapping[str, Any]) -> dict[str, Any]:
    result = _canonical_amounts({name: value for name, value in device.items() if value}, "capacity")
    if "consumesCounters" in result:
        result["consumesCounters"] = [
            _canonical_amounts(one, "counters") for one in result["consumesCounters"]
        ]
    if "taints" in result:
        result["taints"] = [
            {name: value for name, value in taint.items() if value and name != "timeAdded"}
            for taint in result["taints"]
        ]
    return result


def _canonical_amounts(holder: Mapping[str, Any], field: str) -> dict[str, Any]:
    """The object, with the quantities in one field (a map from names to amounts) as numbers."""
    if not holder.get(field):
        return dict(holder)
    amounts = {
        name: {one: _canonical_field(one, value) for one, value in amount.items() if value is not None}
        for name, amount in holder[field].items()
    }
    return {**holder, field: amounts}


def _canonical_field(name: str, value: Any) -> Any:
    """A field of an amount: its value, or its request policy."""
    if name == "value":
        return _canonical_quantity(value)
    if name != "requestPolicy" or not isinstance(value, dict):
        return value
    return {
        one: _canonical_quantities(inner) for one, inner in value.items() if inner is not None and inner != []
    }


def _canonical_quantities(value: Any) -> Any:
    """The quantities in a field of a request policy as numbers: one, a list of them, or a range."""
    match value:
        case list():
            return [_canonical_quantity(one) for one in value]
        case dict():
            return {name: _canonical_quantity(one) for name, one in value.items() if one is not None}
        case _:
            return _canonical_quantity(value)


def _canonical_quantity(value: Any) -> Any:
    """The number, or the value itself if it is not a quantity, so that it differs from every quantity."""
    try:
        return parse_quantity(str(value))
    except ValueError:
        return value


def taint_times(
    wanted: Iterable[Mapping[str, Any]], stored: Iterable[Mapping[str, Any]], former: TaintTimes
) -> TaintTimes:
    """``timeAdded`` of the taints of the wanted specs: the stored one, else the ``former`` one.

    The device may have moved to another slice meanwhile.
    """
    # The taint eviction controller counts tolerationSeconds from timeAdded, so it must not change when a
    # slice is written again, or when a kubelet has deleted it.
    known = dict(former)
    known.update((key, str(taint["timeAdded"])) for key, taint in _taints(stored) if taint.get("timeAdded"))
    return {key: known[key] for key, _ in _taints(wanted) if key in known}


def with_times(wanted: Mapping[str, Any], times: TaintTimes) -> Spec:
    """The wanted spec, with these ``timeAdded`` of its taints. It shares what has none with ``wanted``."""
    if not times or not wanted.get("devices"):
        return dict(wanted)
    return {**wanted, "devices": [_device_with_times(device, times) for device in wanted["devices"]]}


def _device_with_times(device: Mapping[str, Any], times: TaintTimes) -> Mapping[str, Any]:
    taints = device.get("taints")
    if not taints:
        return device
    known = [(taint, times.get(_taint_identity(device, taint))) for taint in taints]
    return {**device, "taints": [{"timeAdded": time, **taint} if time else taint for taint, time in known]}


def _taints(specs: Iterable[Mapping[str, Any]]) -> Iterator[tuple[_TaintIdentity, dict[str, Any]]]:
    """The taints of all devices, each with its identity."""
    for spec in specs:
        for device in spec.get("devices") or []:
            for taint in device.get("taints") or []:
                yield _taint_identity(device, taint), taint


def _taint_identity(device: Mapping[str, Any], taint: Mapping[str, Any]) -> _TaintIdentity:
    return device.get("name"), taint.get("key"), taint.get("value") or "", taint.get("effect")
