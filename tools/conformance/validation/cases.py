"""Valid objects of resource.k8s.io/v1, and written cases that each break one rule."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tools.conformance.area import Case
from tools.conformance.validation import changes as changes_of
from tools.conformance.validation.changes import REMOVED, Change

Object = dict[str, Any]

CEL = 'device.driver == "gpu.example.com"'


def _policy_device() -> Object:
    return {
        "name": "shared",
        "allowMultipleAllocations": True,
        "capacity": {
            "memory": {
                "value": "80Gi",
                "requestPolicy": {
                    "default": "10Gi",
                    "validRange": {"min": "10Gi", "max": "40Gi", "step": "10Gi"},
                },
            },
            "slots": {"value": "8", "requestPolicy": {"default": "1", "validValues": ["1", "2", "4", "8"]}},
            "cores": {"value": "100", "requestPolicy": {"default": "5"}},
        },
    }


def _plain_device() -> Object:
    return {
        "name": "gpu-0",
        "attributes": {
            "index": {"int": 0},
            "healthy": {"bool": True},
            "model": {"string": "H100"},
            "example.com/driverVersion": {"version": "1.2.3-rc.1+build.5"},
        },
        "capacity": {"memory": {"value": "80Gi"}, "example.com/engines": {"value": "7"}},
        "taints": [{"key": "example.com/sick", "value": "yes", "effect": "NoSchedule"}],
        "bindingConditions": ["example.com/attached"],
        "bindingFailureConditions": ["example.com/broken"],
        "bindsToNode": True,
        "consumesCounters": [
            {"counterSet": "board-0", "counters": {"memory": {"value": "40Gi"}, "slices": {"value": "3"}}}
        ],
    }


def _own_node_devices() -> list[Object]:
    expression = {"key": "zone", "operator": "In", "values": ["a", "b"]}
    field = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    terms = [{"matchExpressions": [expression], "matchFields": [field]}]
    return [
        {"name": "a", "nodeName": "node-1"},
        {"name": "b", "allNodes": True},
        {"name": "c", "nodeSelector": {"nodeSelectorTerms": terms}},
    ]


def _resource_slice(name: str, **spec: Any) -> Object:
    pool = {"name": "rack-1/node-1", "generation": 3, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name, "labels": {"app": "gpu"}, "annotations": {"example.com/Note": "x"}},
        "spec": {"driver": "gpu.example.com", "pool": pool, **spec},
    }


def _claim_spec() -> Object:
    toleration = {"key": "example.com/sick", "operator": "Exists", "effect": "NoExecute"}
    exact = {
        "deviceClassName": "gpu.example.com",
        "selectors": [{"cel": {"expression": CEL}}],
        "allocationMode": "ExactCount",
        "count": 2,
        "tolerations": [toleration, {"key": "a", "operator": "Equal", "value": "b"}],
        "capacity": {"requests": {"memory": "10Gi"}},
    }
    sub = {"name": "big", "deviceClassName": "gpu.example.com", "allocationMode": "All"}
    opaque = {"driver": "gpu.example.com", "parameters": {"kind": "GpuConfig"}}
    return {
        "devices": {
            "requests": [
                {"name": "gpu", "exactly": exact},
                {
                    "name": "any",
                    "firstAvailable": [sub, {**sub, "name": "small", "tolerations": [toleration]}],
                },
            ],
            "constraints": [
                {"requests": ["gpu", "any/big"], "matchAttribute": "gpu.example.com/numa"},
                {"distinctAttribute": "gpu.example.com/uuid"},
            ],
            "config": [{"requests": ["any"], "opaque": opaque}, {"opaque": opaque}],
        }
    }


def _claim() -> Object:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    metadata = {
        "name": "claim",
        "namespace": "default",
        "finalizers": ["example.com/keep"],
        "ownerReferences": [owner, {**owner, "apiVersion": "apps/v1", "controller": False}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": _claim_spec(),
    }


def _template() -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "template", "namespace": "default"},
        "spec": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": _claim_spec()},
    }


def _device_class() -> Object:
    opaque = {"driver": "gpu.example.com", "parameters": {"kind": "GpuConfig"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.example.com"},
        "spec": {
            "selectors": [{"cel": {"expression": CEL}}],
            "config": [{"opaque": opaque}],
            "extendedResourceName": "example.com/gpu",
        },
    }


def valid_objects() -> list[Object]:
    """A valid object of each kind and shape."""
    counters = {"memory": {"value": "80Gi"}, "slices": {"value": "7"}}
    return [
        _resource_slice("plain", nodeName="node-1", devices=[_plain_device(), {"name": "gpu-1"}]),
        _resource_slice("shared", allNodes=True, devices=[_policy_device()]),
        _resource_slice("own-nodes", perDeviceNodeSelection=True, devices=_own_node_devices()),
        _resource_slice("counters", nodeName="node-1", sharedCounters=[{"name": "b", "counters": counters}]),
        _resource_slice(
            "chosen",
            nodeSelector={
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
            },
        ),
        _claim(),
        _template(),
        _device_class(),
    ]


def place(item: Any, path: str) -> tuple[Any, Any]:
    """The map or list that contains the place ``path``, and its key or index there."""
    *parents, last = path.split(".")
    for part in parents:
        item = item[int(part)] if isinstance(item, list) else item[part]
    return item, int(last) if isinstance(item, list) else last


def changed(item: Object, *changes: Change) -> Object:
    """A copy of the object after the changes."""
    result = copy.deepcopy(item)
    for path, value in changes:
        holder, key = place(result, path)
        if value is REMOVED:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(value)
    return result


def written_cases() -> Iterator[Case]:
    """Each valid object, then each with one rule broken."""
    plain, shared, own, counters, _, claim, template, device_class = valid_objects()
    for item in valid_objects():
        yield {"op": "validate", "object": item}
    for item, changes in (
        (plain, changes_of.SLICE_CHANGES),
        (shared, changes_of.SHARED_CHANGES),
        (own, changes_of.OWN_NODE_CHANGES),
        (counters, changes_of.COUNTER_CHANGES),
        (claim, changes_of.CLAIM_CHANGES),
        (template, changes_of.TEMPLATE_CHANGES),
        (device_class, changes_of.CLASS_CHANGES),
    ):
        for change in changes:
            yield {"op": "validate", "object": changed(item, *change)}
