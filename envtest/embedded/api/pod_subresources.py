"""What a POST to a subresource of a pod does: bind it to a node, or evict it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envtest.embedded.api.defaults import now
from envtest.embedded.api.statuses import Refused, details_of

if TYPE_CHECKING:
    from envtest.embedded.api.requests import Request
    from envtest.embedded.api.resources import Resource

Object = dict[str, Any]


def bound(request: Request, resource: Resource, pod: Object, binding: Object) -> Object:
    """The pod on the node that the Binding names; raises Refused (400, 409)."""
    node = (binding.get("target") or {}).get("name")
    if not node:
        raise Refused(400, "the Binding has no target.name")
    spec = pod.get("spec") or {}
    details = details_of(resource.group, resource.plural, request.name)
    head = f'Operation cannot be fulfilled on pods/binding "{request.name}": '
    if "deletionTimestamp" in pod["metadata"]:
        text = f"{head}pod {request.name} is being deleted, cannot be assigned to a host"
        raise Refused(409, text, details=details)
    if spec.get("nodeName"):
        text = f'{head}pod {request.name} is already assigned to node "{spec["nodeName"]}"'
        raise Refused(409, text, details=details)
    if spec.get("schedulingGates"):
        text = f"{head}pod {request.name} has non-empty .spec.schedulingGates"
        raise Refused(409, text, details=details)
    status = pod.get("status") or {}
    conditions = [one for one in status.get("conditions") or [] if one.get("type") != "PodScheduled"]
    conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": now()})
    return {**pod, "spec": {**spec, "nodeName": node}, "status": {**status, "conditions": conditions}}


def eviction_options(eviction: Any) -> Object:
    """The DeleteOptions of an Eviction; raises Refused (400)."""
    if not isinstance(eviction, dict):
        raise Refused(400, "the body of the request has to be an Eviction")
    return dict(eviction.get("deleteOptions") or {})
