"""Fills in defaults on a write, as the API server does, and drops the fields of disabled feature gates."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from kubernetes_rules.defaults import (
    created_pod,
    default_few,
    defaulted_claim_spec,
    defaulted_pod,
    defaulted_workload,
)
from kubernetes_rules.pod_resources import quality_of_service

Object = dict[str, Any]

ALPHA_GATES = frozenset(
    {
        "DRAListTypeAttributes",
        "DRANodeAllocatableResources",
        "DRADerivedAttributes",
        "DRADeviceCompatibilityGroups",
        "DRAOptionalNodeOperations",
        "DRAPartitionableDevicesType",
    }
)
"""The gates that are off in Kubernetes 1.37 unless somebody turns them on."""

_DEVICE_FIELDS_OF_GATE = {
    "DRADeviceTaints": ("taints",),
    "DRAPartitionableDevices": ("consumesCounters", "nodeName", "nodeSelector", "allNodes"),
    "DRAConsumableCapacity": ("allowMultipleAllocations",),
    "DRADeviceBindingConditions": ("bindsToNode", "bindingConditions", "bindingFailureConditions"),
    "DRANodeAllocatableResources": ("nodeAllocatableResources",),
}
_SPEC_FIELDS_OF_GATE = {
    "DRAPartitionableDevices": ("sharedCounters", "perDeviceNodeSelection"),
    "DRAPartitionableDevicesType": ("partitionTypeAttribute",),
    "DRAOptionalNodeOperations": ("skipNodeOperations",),
}
_FIRST_PHASES = {"namespaces": "Active", "persistentvolumeclaims": "Pending"}
_LISTS = ("ints", "bools", "strings", "versions")


def now() -> str:
    """This moment as the API writes it, in whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def defaulted(item: Object, resource: str, disabled_gates: frozenset[str], old: Object | None) -> Object:
    """``item``, changed in place, as the server stores it; ``old`` is the object that it replaces.

    Fields of a disabled gate are dropped, unless ``old`` uses them already.
    """
    match resource:
        case "resourceslices":
            _default_slice(item.get("spec") or {}, disabled_gates, (old or {}).get("spec") or {})
        case "resourceclaims":
            _default_claim(item, disabled_gates)
        case "resourceclaimtemplates":
            _default_claim(item.get("spec") or {}, disabled_gates)
        case "devicetaintrules":
            _default_rule((item.get("spec") or {}).get("taint"), ((old or {}).get("spec") or {}).get("taint"))
        case "pods":
            _default_pod(item, old)
        case "deployments" | "replicasets" | "jobs":
            _default_workload(item, old)
        case "secrets":
            _default_secret(item)
        case "namespaces":
            _default_namespace(item, old)
        case _ if resource:
            default_few(item)
    return item


def first_status(resource: str, item: Object) -> Object:
    """What the status of a new object says, beside what it always has; ``item`` has its defaults."""
    if resource == "pods":
        return {"phase": "Pending", "qosClass": quality_of_service(item["spec"])}
    return {"phase": _FIRST_PHASES[resource]} if resource in _FIRST_PHASES else {}


def default_status(item: Object, old: Object) -> None:
    """Fill in what the status of a pod, a node or a namespace always has when a client writes it."""
    status = item.get("status") or {}
    if item["kind"] == "Pod":
        # Both name the address; the class of a pod never changes.
        if status.get("podIP") and not status.get("podIPs"):
            status["podIPs"] = [{"ip": status["podIP"]}]
        # Older clients leave out what they do not know.
        kept = old.get("status") or {}
        for name in ("qosClass", "resourceClaimStatuses", "extendedResourceClaimStatus"):
            if kept.get(name):
                status.setdefault(name, kept[name])
    elif item["kind"] == "Node" and status.get("capacity") and status.get("allocatable") is None:
        status["allocatable"] = dict(status["capacity"])
    elif item["kind"] == "Namespace":
        labels = item["metadata"].get("labels") or {}
        item["metadata"]["labels"] = {**labels, "kubernetes.io/metadata.name": item["metadata"]["name"]}
    item["status"] = status


def _default_slice(spec: Object, disabled_gates: frozenset[str], old: Object) -> None:
    devices: list[Object] = spec.get("devices") or []
    for device in devices:
        # Toleration seconds count from this time.
        for taint in device.get("taints") or []:
            taint.setdefault("timeAdded", now())
    for gate in disabled_gates:
        _drop_gate(gate, spec, old)


def _drop_gate(gate: str, spec: Object, old: Object) -> None:
    """Drop the fields of a gate from a slice, unless the stored slice uses them already."""
    devices, old_devices = spec.get("devices") or [], old.get("devices") or []
    for name in _SPEC_FIELDS_OF_GATE.get(gate, ()):
        if name not in old:
            spec.pop(name, None)
    unused = [
        name
        for name in _DEVICE_FIELDS_OF_GATE.get(gate, ())
        if not any(name in device for device in old_devices)
    ]
    _drop_fields(devices, unused)
    if gate == "DRAListTypeAttributes" and not any(map(_has_lists, old_devices)):
        _drop_fields([one for device in devices for one in (device.get("attributes") or {}).values()], _LISTS)
    if gate == "DRAConsumableCapacity" and not any(
        "requestPolicy" in one for one in _capacities(old_devices)
    ):
        _drop_fields(_capacities(devices), ("requestPolicy",))
    if gate == "DRADeviceCompatibilityGroups":
        consumed = [one for device in devices for one in device.get("consumesCounters") or []]
        _drop_fields(consumed, ("compatibilityGroups",))


def _drop_fields(items: Iterable[Object], names: Iterable[str]) -> None:
    for item in items:
        for name in names:
            item.pop(name, None)


def _capacities(devices: Iterable[Object]) -> list[Object]:
    return [one for device in devices for one in (device.get("capacity") or {}).values()]


def _has_lists(device: Object) -> bool:
    return any(name in one for one in (device.get("attributes") or {}).values() for name in _LISTS)


def _default_rule(taint: Object | None, old: Object | None) -> None:
    """Set when the taint was added: now where it has no time, or where its effect has changed."""
    if not taint:
        return
    if old and taint.get("effect") != old.get("effect") and taint.get("timeAdded") == old.get("timeAdded"):
        taint.pop("timeAdded", None)
    taint.setdefault("timeAdded", now())


def _default_claim(holder: Object, disabled_gates: frozenset[str]) -> None:
    """Fill in the ``spec`` of a claim, which a claim holds, or the spec of a template."""
    if not holder.get("spec"):
        return
    spec = holder["spec"] = defaulted_claim_spec(holder["spec"])
    if "DRADerivedAttributes" not in disabled_gates:
        return
    for request in (spec.get("devices") or {}).get("requests") or []:
        asked = [request.get("exactly") or {}, *(request.get("firstAvailable") or [])]
        _drop_fields(asked, ("derivedAttributes",))


def _default_pod(pod: Object, old: Object | None) -> None:
    """Fill in the spec of a pod; a new one belongs to a service account."""
    spec = pod["spec"] = pod.get("spec") or {}
    if old is None and not spec.get("serviceAccountName") and not spec.get("serviceAccount"):
        # The admission plugin ServiceAccount does it.
        spec["serviceAccountName"] = "default"
    pod["spec"] = (created_pod(pod) if old is None else defaulted_pod(pod))["spec"]


def _default_namespace(namespace: Object, old: Object | None) -> None:
    """A new namespace has the finalizer of the namespace controller; an update takes none away."""
    labels = namespace["metadata"].setdefault("labels", {})
    # Set at each write, so that selectors can choose namespaces by name.
    labels["kubernetes.io/metadata.name"] = namespace["metadata"].get("name", "")
    spec = namespace.setdefault("spec", {})
    if old is not None:
        # They are removed through the subresource finalize only.
        spec["finalizers"] = (old.get("spec") or {}).get("finalizers") or []
    elif "kubernetes" not in spec.setdefault("finalizers", []):
        spec["finalizers"].append("kubernetes")


def _default_workload(item: Object, old: Object | None) -> None:
    item.update(defaulted_workload(item, is_new=old is None))


def _default_secret(item: Object) -> None:
    """Move stringData into data, where all values are in base64."""
    item.setdefault("type", "Opaque")
    for key, text in (item.pop("stringData", None) or {}).items():
        item.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
