"""Checks ResourceSlices."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation.declared import declared_errors
from kubernetes_rules.validation.devices import counter_map_errors, device_errors
from kubernetes_rules.validation.field import FieldError, invalid, list_errors, required
from kubernetes_rules.validation.names import driver_name_errors, pool_name_errors
from kubernetes_rules.validation.node_selector import node_name_errors, node_selector_errors

Object = dict[str, Any]

# ResourceSliceMaxDevices is 128; with taints, counters or list attributes a slice has at most 64 devices.
_MOST_DEVICES = 128
_MOST_ADVANCED_DEVICES = 64
_MOST_COUNTER_SETS = 8
_LISTS = ("bools", "ints", "strings", "versions")
_UNSET_OR_TRUE = "must be either unset or set to true"


def slice_spec_errors(spec: Object, old: Object | None, path: str = "spec") -> list[FieldError]:
    """The errors of a ResourceSlice's spec; ``old`` is the spec before an update."""
    pool = spec.get("pool") or {}
    errors = driver_name_errors(spec.get("driver") or "", f"{path}.driver") + _pool_errors(
        pool, f"{path}.pool"
    )
    if old is not None:
        errors += _kept_errors(spec, old, path)
    errors += _node_errors(spec, path)
    devices, counters = spec.get("devices"), spec.get("sharedCounters")
    if devices is not None and counters is not None:
        errors.append(invalid(path, "", "only one of `sharedCounters` or `devices` is allowed"))
    own_nodes = spec.get("perDeviceNodeSelection") is True
    before = {device.get("name"): device for device in reversed((old or {}).get("devices") or [])}
    errors += list_errors(
        devices,
        f"{path}.devices",
        lambda device, here: device_errors(device, before.get(device.get("name")), here, own_nodes=own_nodes),
        most=_MOST_ADVANCED_DEVICES if _is_advanced(devices or []) else _MOST_DEVICES,
        key=lambda device: device.get("name") or "",
    )
    if len(counters or []) <= _MOST_COUNTER_SETS:
        for index, counter_set in enumerate(counters or []):
            errors += counter_map_errors(
                counter_set.get("counters"), f"{path}.sharedCounters[{index}].counters"
            )
    return errors + declared_errors("ResourceSliceSpec", spec, path, old)


def _pool_errors(pool: Object, path: str) -> list[FieldError]:
    errors = pool_name_errors(pool.get("name") or "", f"{path}.name")
    count, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if count <= 0:
        errors.append(invalid(f"{path}.resourceSliceCount", count, "must be greater than zero"))
    if generation < 0:
        errors.append(invalid(f"{path}.generation", generation, "must be greater than or equal to zero"))
    return errors


def _kept_errors(spec: Object, old: Object, path: str) -> list[FieldError]:
    """The errors of immutable fields: the pool's name, driver and node."""
    errors: list[FieldError] = []
    name = (spec.get("pool") or {}).get("name") or ""
    if name != ((old.get("pool") or {}).get("name") or ""):
        errors.append(invalid(f"{path}.pool.name", name, "field is immutable"))
    return errors + [
        invalid(f"{path}.{key}", spec.get(key), "field is immutable")
        for key in ("driver", "nodeName")
        if spec.get(key) != old.get(key)
    ]


def _node_errors(spec: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    name, selector = spec.get("nodeName"), spec.get("nodeSelector")
    if name:
        errors += node_name_errors(name, f"{path}.nodeName")
    elif name is not None:
        errors.append(invalid(f"{path}.nodeName", "", "must be either unset or set to a non-empty string"))
    if selector is not None:
        errors += node_selector_errors(selector, f"{path}.nodeSelector")
        terms = selector.get("nodeSelectorTerms")
        if len(terms or []) != 1:
            here = f"{path}.nodeSelector.nodeSelectorTerms"
            errors.append(invalid(here, terms, "must have exactly one node selector term"))
    for key in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(key) is False:
            errors.append(invalid(f"{path}.{key}", spec[key], _UNSET_OR_TRUE))
    given = {
        "nodeName": bool(name),
        "nodeSelector": selector is not None,
        "allNodes": spec.get("allNodes") is True,
        "perDeviceNodeSelection": spec.get("perDeviceNodeSelection") is True,
    }
    chosen = [f"`{key}`" for key, is_set in given.items() if is_set]
    text = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not chosen:
        errors.append(required(path, text))
    elif len(chosen) > 1:
        shown = "{" + ", ".join(chosen) + "}"
        errors.append(invalid(path, shown, f"{text}, but multiple fields are set"))
    return errors


def _is_advanced(devices: list[Object]) -> bool:
    """Whether a device has taints, counters or list attributes, which makes the limit of devices lower."""
    return any(
        device.get("taints")
        or device.get("consumesCounters")
        or any(
            (attribute or {}).get(name) is not None
            for attribute in (device.get("attributes") or {}).values()
            for name in _LISTS
        )
        for device in devices
    )
