"""Shows how many pods a workload is to have as a Scale of autoscaling/v1, and takes it in that form.

Go: ScaleREST in pkg/registry/apps/deployment/storage and in pkg/registry/apps/replicaset/storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envtest.embedded.api.resources import Resource
from envtest.embedded.api.statuses import invalid
from kubernetes_rules.label_selectors import selector_text
from kubernetes_rules.validation.errors import invalid as wrong

if TYPE_CHECKING:
    from collections.abc import Mapping

Object = dict[str, Any]

SUBRESOURCE = "scale"
SCALE = Resource("autoscaling", "scales", "scale", "Scale")
"""The kind of the subresource; no collection of it is served."""

_SHOWN_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(item: Mapping[str, Any]) -> Object:
    """The Scale of a workload."""
    spec, status, metadata = item.get("spec") or {}, item.get("status") or {}, item["metadata"]
    replicas = spec.get("replicas", 1)
    return {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": {key: metadata[key] for key in _SHOWN_METADATA if key in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": {"replicas": status.get("replicas", 0), "selector": selector_text(spec.get("selector"))},
    }


def scaled(item: Mapping[str, Any], scale: Mapping[str, Any]) -> Object:
    """The workload with as many replicas as a Scale says; raises Refused (422) for a negative number."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if replicas < 0:
        errors = [wrong("spec.replicas", replicas, "must be greater than or equal to 0")]
        raise invalid(SCALE.group, SCALE.kind, item["metadata"]["name"], errors)
    asked = {key: scale["metadata"][key] for key in ("uid", "resourceVersion") if scale["metadata"].get(key)}
    metadata = {key: value for key, value in item["metadata"].items() if key != "resourceVersion"}
    return {**item, "metadata": {**metadata, **asked}, "spec": {**item["spec"], "replicas": replicas}}
