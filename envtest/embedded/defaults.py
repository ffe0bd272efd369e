"""Fills in what the API server fills in on a write, and drops the fields of disabled feature gates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]

_DEVICE_FIELDS_OF_GATE = {
    "DRADeviceTaints": ("taints",),
    "DRAPartitionableDevices": ("consumesCounters", "nodeName", "nodeSelector", "allNodes"),
    "DRAConsumableCapacity": ("allowMultipleAllocations",),
    "DRADeviceBindingConditions": ("bindsToNode", "bindingConditions", "bindingFailureConditions"),
}
_SPEC_FIELDS_OF_GATE = {"DRAPartitionableDevices": ("sharedCounters", "perDeviceNodeSelection")}


def defaulted(item: Object, resource: str, disabled_gates: frozenset[str], old: Object | None) -> Object:
    """``item``, changed in place, as the server stores it; ``old`` is the object that it replaces.

    Fields of a disabled gate are dropped, unless ``old`` uses them already.
    """
    if resource != "resourceslices":
        return item
    spec = item.get("spec") or {}
    for device in spec.get("devices") or []:
        for taint in device.get("taints") or []:
            taint.setdefault("timeAdded", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    old_spec = (old or {}).get("spec") or {}
    for gate in disabled_gates:
        for name in _SPEC_FIELDS_OF_GATE.get(gate, ()):
            if name not in old_spec:
                spec.pop(name, None)
        for name in _DEVICE_FIELDS_OF_GATE.get(gate, ()):
            if not any(name in device for device in old_spec.get("devices") or []):
                for device in spec.get("devices") or []:
                    device.pop(name, None)
    return item
