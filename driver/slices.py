"""Lays devices out over the specs of ResourceSlices (resource.k8s.io/v1), and compares such specs.

A spec here has everything except ``pool.generation``, which the publisher gives it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from driver.device_limits import device_faults, is_pool_name
from driver.errors import ConfigError
from driver.model import Version
from driver.names import DRIVER_NAME
from driver.quantity import format_bytes, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from driver.model import AttributeValue, Device, Taint

Spec = dict[str, Any]

DEVICES_PER_SLICE = 64
"""The limit for a slice with a tainted device (it is 128 without): a taint may come at any time, and
must not move devices from slice to slice."""


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


def lay_out(devices: Iterable[Device], *, pool: str, node: str, driver: str = DRIVER_NAME) -> Layout:
    """The slices of a pool: devices in the order of their PCI addresses, then names, 64 in each.

    A device that breaks a limit of the API, or has the name of another, is left out, never the pool.
    Without devices one empty slice says that the driver is there. Raises ConfigError when the pool's
    name cannot be one.
    """
    if not is_pool_name(pool):
        raise ConfigError(f"{pool!r} cannot be the name of a pool", "check --node-name")
    accepted: list[Device] = []
    rejected: list[Rejected] = []
    names: set[str] = set()
    for device in sorted(devices, key=lambda device: (device.pci, device.name)):
        reasons = device_faults(device, driver)
        if device.name in names:
            reasons += (f"name {device.name!r} is taken by another device",)
        if reasons:
            rejected.append(Rejected(device, reasons))
        else:
            names.add(device.name)
            accepted.append(device)
    starts = range(0, max(len(accepted), 1), DEVICES_PER_SLICE)
    specs = []
    for start in starts:
        spec: Spec = {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": pool, "resourceSliceCount": len(starts)},
        }
        chunk = accepted[start : start + DEVICES_PER_SLICE]
        if chunk:
            spec["devices"] = [_device_json(device) for device in chunk]
        specs.append(spec)
    return Layout(tuple(specs), tuple(rejected))


def _device_json(device: Device) -> dict[str, Any]:
    result: dict[str, Any] = {"name": device.name}
    if device.attributes:
        result["attributes"] = {
            name: _attribute_json(value) for name, value in sorted(device.attributes.items())
        }
    if device.capacity:
        result["capacity"] = {
            name: {"value": format_bytes(amount)} for name, amount in sorted(device.capacity.items())
        }
    if device.taints:
        result["taints"] = [_taint_json(taint) for taint in device.taints]
    return result


def _attribute_json(value: AttributeValue) -> dict[str, Any]:
    match value:
        case bool():
            return {"bool": value}
        case int():
            return {"int": value}
        case Version():
            return {"version": value.text}
        case _:
            return {"string": value}


def _taint_json(taint: Taint) -> dict[str, Any]:
    known = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    return {name: text for name, text in known.items() if text}


def same_spec(wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    """Whether the stored spec says what the wanted one says, ``pool.generation`` aside.

    The same are: quantities written in another way, absent and empty fields, and any ``timeAdded`` of
    a taint whose wanted form has none, since the server fills it in. The order of devices counts.
    """
    return _canonical_spec(wanted) == _canonical_spec(stored)


def canonical_devices(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The devices of a spec in a form in which equal ones are ``==``."""
    return [_canonical_device(device) for device in spec.get("devices") or []]


def _canonical_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    pool = {name: value for name, value in (spec.get("pool") or {}).items() if name != "generation"}
    rest = {name: value for name, value in spec.items() if name not in ("pool", "devices") and value}
    return {**rest, "pool": pool, "devices": canonical_devices(spec)}


def _canonical_device(device: Mapping[str, Any]) -> dict[str, Any]:
    result = {name: value for name, value in device.items() if value}
    if "capacity" in result:
        result["capacity"] = {
            name: {**capacity, "value": _canonical_quantity(capacity.get("value"))}
            for name, capacity in result["capacity"].items()
        }
    if "taints" in result:
        result["taints"] = [
            {name: value for name, value in taint.items() if value and name != "timeAdded"}
            for taint in result["taints"]
        ]
    return result


def _canonical_quantity(value: Any) -> Any:
    """The number, or the value itself when it is none: it is then different from ours."""
    try:
        return parse_quantity(str(value))
    except ValueError:
        return value


def with_kept_times(wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> Spec:
    """A copy of the wanted spec in which unchanged taints keep the ``timeAdded`` of the stored one.

    Evictions count from that time, so a rewrite for another reason must not move it.
    """
    times = {
        _taint_identity(device, taint): taint["timeAdded"]
        for device in stored.get("devices") or []
        for taint in device.get("taints") or []
        if taint.get("timeAdded")
    }
    result: Spec = copy.deepcopy(dict(wanted))
    for device in result.get("devices") or []:
        for taint in device.get("taints") or []:
            added = times.get(_taint_identity(device, taint))
            if added is not None:
                taint.setdefault("timeAdded", added)
    return result


def _taint_identity(device: Mapping[str, Any], taint: Mapping[str, Any]) -> tuple[Any, ...]:
    return device.get("name"), taint.get("key"), taint.get("value") or "", taint.get("effect")
