"""Subresources: the scale of a workload (autoscaling/v1), and binding and eviction of a pod.

Go for the scale: ScaleREST in pkg/registry/apps/deployment/storage and pkg/registry/apps/replicaset/storage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envtest.embedded.api.defaults import now
from envtest.embedded.api.requests import Request
from envtest.embedded.api.resources import Resource
from envtest.embedded.api.statuses import Refused, details_of, invalid, plain_go_error
from envtest.embedded.schema.decoding import Decoder, DecodingError
from envtest.embedded.schema.types import type_of
from kubernetes_rules.selectors import label_selector_text
from kubernetes_rules.validation import field as field_errors

Object = dict[str, Any]

SCALE = "scale"
SCALE_KIND = Resource("autoscaling", "scales", "Scale")
"""The kind of that subresource; it has no collection."""

KINDS = {SCALE: SCALE_KIND}
"""The kinds of subresources that are of another group than their resource."""

_SHOWN_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(item: Mapping[str, Any]) -> Object:
    """The Scale of an object."""
    spec, status, metadata = item.get("spec") or {}, item.get("status") or {}, item["metadata"]
    replicas = spec.get("replicas", 1)
    return {
        "kind": SCALE_KIND.kind,
        "apiVersion": SCALE_KIND.api_version,
        "metadata": {key: metadata[key] for key in _SHOWN_METADATA if key in metadata},
        # Go leaves a zero out (omitempty), and reads it from nothing.
        "spec": {"replicas": replicas} if replicas else {},
        "status": {
            "replicas": status.get("replicas", 0),
            "selector": label_selector_text(spec.get("selector")),
        },
    }


def scaled(item: Mapping[str, Any], scale: Mapping[str, Any]) -> Object:
    """The object with as many replicas as a Scale says; raises Refused (422) for a negative number."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if replicas < 0:
        errors = [field_errors.invalid("spec.replicas", replicas, "must be greater than or equal to 0")]
        raise invalid(SCALE_KIND.group, SCALE_KIND.kind, item["metadata"]["name"], errors)
    # The preconditions of the Scale hold for the workload.
    asked = {key: scale["metadata"][key] for key in ("uid", "resourceVersion") if scale["metadata"].get(key)}
    metadata = {key: value for key, value in item["metadata"].items() if key != "resourceVersion"}
    item = {**item, "metadata": {**metadata, **asked}}
    return {**item, "spec": {**item["spec"], "replicas": replicas}}


def bound(request: Request, resource: Resource, pod: Object, body: Any) -> Object:
    """The pod on the node that the Binding in ``body`` names; raises Refused (400, 409, 500)."""
    binding = _decoded(body, "v1", "Binding")
    metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
    if metadata.get("name") != request.name:
        raise Refused(400, "name in URL does not match name in Binding object")
    node = target.get("name")
    if not node:
        raise plain_go_error("target.name: Required value")
    spec = pod.get("spec") or {}
    details = details_of(resource.group, "pods/binding", request.name)
    head = f'Operation cannot be fulfilled on pods/binding "{request.name}": '
    if "deletionTimestamp" in pod["metadata"]:
        raise Refused(409, f"{head}it is being deleted, and gets no host", details=details)
    if spec.get("nodeName"):
        raise Refused(409, f"{head}it is already assigned to a node", details=details)
    if spec.get("schedulingGates"):
        text = f"{head}pod {request.name} has non-empty .spec.schedulingGates"
        raise Refused(409, text, details=details)
    status = pod.get("status") or {}
    conditions = [one for one in status.get("conditions") or [] if one.get("type") != "PodScheduled"]
    # kube-apiserver writes this condition itself, in the same write as the node.
    conditions.append(
        {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now()}
    )
    return {
        **pod,
        "spec": {**spec, "nodeName": node},
        "status": {**status, "conditions": conditions},
    }


def eviction_options(request: Request, body: Any) -> Object:
    """The DeleteOptions of the Eviction in ``body``; raises Refused (400)."""
    eviction = _decoded(body, "policy/v1", "Eviction")
    if (eviction.get("metadata") or {}).get("name") != request.name:
        raise Refused(400, "name in URL does not match name in Eviction object")
    return dict(eviction.get("deleteOptions") or {})


def _decoded(body: Any, api_version: str, kind: str) -> Object:
    """What a subresource is sent, as its type has it; raises Refused (400)."""
    known = type_of(api_version, kind)
    assert known is not None, kind
    head = f'{kind} in version "{api_version.rpartition("/")[2]}" cannot be handled as a {kind}: '
    if not isinstance(body, dict):
        raise Refused(400, f"{head}the body is no object")
    try:
        decoded: Object = Decoder().decode(body, known)
    except DecodingError as error:
        raise Refused(400, f"{head}{error}") from error
    return decoded
