"""Changes to the valid objects of the cases; each breaks one rule."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
Change = tuple[str, Any]
"""A path such as ``spec.devices.0.name`` and its new value; REMOVED deletes the field."""

REMOVED = object()


def _numbered(count: int, **fields: Any) -> list[Object]:
    return [{"name": f"n{index}", **fields} for index in range(count)]


_DEVICE = "spec.devices.0"
SLICE_CHANGES: tuple[tuple[Change, ...], ...] = (
    (("metadata.name", REMOVED),),
    (("metadata.generateName", "bad_"),),
    (("metadata.namespace", "default"),),
    (("metadata.generation", -1),),
    (("metadata.labels", {"a/b/c": "x", "ok": "b c", "": "x", "/x": "y"}),),
    (("metadata.annotations", {"a": "x" * 300_000}),),
    (("metadata.finalizers", ["orphan", "foregroundDeletion"]),),
    (("metadata.finalizers", ["mine", "bad name"]),),
    (("metadata.ownerReferences", [{}]),),
    (("metadata.ownerReferences", [{"apiVersion": "a/b/c", "kind": "x", "name": "y", "uid": "z"}]),),
    (("metadata.ownerReferences", [{"apiVersion": "v1", "kind": "Event", "name": "y", "uid": "z"}]),),
    (("spec.pool.generation", -1),),
    (("spec.nodeName", ""),),
    (("spec.perDeviceNodeSelection", True),),
    (("spec.sharedCounters", []),),
    ((f"{_DEVICE}.name", "gpu.0"),),
    ((f"{_DEVICE}.attributes", {f"a{index}": {"int": index} for index in range(31)}),),
    ((f"{_DEVICE}.attributes", {"/a": {"int": 1}, "a/": {"int": 1}, "a/b/c": {"int": 1}}),),
    ((f"{_DEVICE}.attributes", {"a" * 200: {}, "a" * 64 + "/b": {"bool": False}, "A.b/c": {"int": 1}}),),
    ((f"{_DEVICE}.attributes", {"a": {"string": "x" * 65}, "b": {"string": "é" * 33}, "c": {"string": ""}}),),
    ((f"{_DEVICE}.attributes", {"a": {"version": "1.2"}, "b": {"version": "1.0.0+" + "a" * 64}}),),
    ((f"{_DEVICE}.capacity.memory.requestPolicy", {"default": "1"}),),
    ((f"{_DEVICE}.taints", [{"key": "a", "effect": one} for one in ("NoExecute", "NoSchedule", "None")]),),
    ((f"{_DEVICE}.bindingConditions", REMOVED),),
    ((f"{_DEVICE}.bindingFailureConditions", REMOVED),),
    ((f"{_DEVICE}.bindingConditions", ["a", "a", "b c", ""]),),
    ((f"{_DEVICE}.bindingConditions", ["a", "b", "c", "d", "e e"]),),
    ((f"{_DEVICE}.bindingFailureConditions", ["example.com/attached"]),),
    ((f"{_DEVICE}.consumesCounters", [{"counterSet": "a", "counters": {"b": {}}}] * 3),),
    ((f"{_DEVICE}.nodeName", "node-1"),),
)

_MEMORY = f"{_DEVICE}.capacity.memory"
_SLOTS = f"{_DEVICE}.capacity.slots"
SHARED_CHANGES: tuple[tuple[Change, ...], ...] = (
    ((f"{_MEMORY}.requestPolicy.default", REMOVED),),
    ((f"{_MEMORY}.requestPolicy.default", "5Gi"),),
    ((f"{_MEMORY}.requestPolicy.validValues", ["10Gi"]),),
    ((f"{_MEMORY}.requestPolicy.validRange", {}),),
    ((f"{_MEMORY}.requestPolicy.validRange.step", "0"),),
    ((f"{_MEMORY}.requestPolicy.validRange.step", "18446744073709551616"),),
    ((f"{_MEMORY}.requestPolicy.validRange.min", "-1"),),
    ((f"{_SLOTS}.requestPolicy.default", "3"),),
    ((f"{_SLOTS}.requestPolicy.validValues", ["4", "2", "1"]),),
    ((f"{_SLOTS}.requestPolicy.validValues", ["1", "1", "9"]),),
    ((f"{_SLOTS}.requestPolicy.validValues", ["1", "1500m", "2"]),),
)

_SELECTOR = "spec.devices.2.nodeSelector.nodeSelectorTerms.0"
OWN_NODE_CHANGES: tuple[tuple[Change, ...], ...] = (
    (("spec.devices.0.nodeName", ""),),
    (("spec.devices.0.allNodes", True),),
    (("spec.devices.1.allNodes", False),),
    ((f"{_SELECTOR}.matchExpressions.0.operator", "Exists"),),
    ((f"{_SELECTOR}.matchExpressions.0.operator", "Gt"),),
    ((f"{_SELECTOR}.matchExpressions.0.values", []),),
    ((f"{_SELECTOR}.matchFields.0.key", "metadata.uid"),),
    ((f"{_SELECTOR}.matchFields.0.operator", "Exists"),),
    ((f"{_SELECTOR}.matchFields.0.values", ["a", "b"]),),
)

COUNTER_CHANGES: tuple[tuple[Change, ...], ...] = (
    (("spec.sharedCounters", _numbered(9, counters={"a": {}})),),
)

_REQUESTS = "spec.devices.requests"
_CONFIG = "spec.devices.config.0"
CLAIM_CHANGES: tuple[tuple[Change, ...], ...] = (
    (("metadata.namespace", REMOVED),),
    (("metadata.ownerReferences.1.controller", True),),
    (("spec.devices.requests", _numbered(33, exactly={"deviceClassName": "a"})),),
    ((f"{_REQUESTS}.0.exactly", REMOVED),),
    ((f"{_REQUESTS}.0.firstAvailable", [{"name": "a", "deviceClassName": ""}]),),
    ((f"{_REQUESTS}.1.firstAvailable.0.count", 3),),
    ((f"{_REQUESTS}.0.exactly.count", -1),),
    ((f"{_REQUESTS}.0.exactly.selectors", [{"cel": {"expression": "true"}}] * 33),),
    ((f"{_REQUESTS}.0.exactly.selectors.0.cel.expression", ""),),
    ((f"{_REQUESTS}.0.exactly.selectors.0.cel.expression", "device."),),
    ((f"{_REQUESTS}.0.exactly.selectors.0.cel.expression", "true" + " " * 10_240),),
    ((f"{_REQUESTS}.0.exactly.tolerations", [{"operator": "Exists", "value": "a"}]),),
    (("spec.devices.constraints", [{"matchAttribute": "a.b/c"}] * 33),),
    (("spec.devices.constraints.0.requests", ["gpu", "gpu", "none", "any/none", "a/b/c", "A_"]),),
    (("spec.devices.constraints.0.requests", [f"r{index}" for index in range(33)]),),
    (("spec.devices.config", [{}] * 33),),
    ((f"{_CONFIG}.opaque.parameters", REMOVED),),
    ((f"{_CONFIG}.opaque.parameters", {"a": "x" * 10_240}),),
)

TEMPLATE_CHANGES: tuple[tuple[Change, ...], ...] = (
    (("spec.metadata", {"name": "a", "uid": "b", "finalizers": ["c"], "generation": 1}),),
)

CLASS_CHANGES: tuple[tuple[Change, ...], ...] = (
    (("spec.config", [{}] * 33),),
    (("spec.extendedResourceName", "example.com/" + "a" * 64),),
)
