"""Words to write cases with: requests, and the objects that they send."""

from __future__ import annotations

import copy
import json
from typing import Any

from tools.conformance.api.playing import Step
from tools.conformance.area import Case

# A case of a table is one line.
# fmt: off
Object = dict[str, Any]

JSON = "application/json"
YAML = "application/yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

NAME = "{{ns}}-a"
"""The name of the object that most cases have; it begins with the name of the case's namespace."""

UID = "00000000-0000-4000-8000-000000000001"

_POD_SPEC: Object = {"containers": [{"name": "main", "image": "registry.example/a:1"}]}
_LABELS = {"app": "web"}
_WORKLOAD: Object = {"selector": {"matchLabels": _LABELS}, "template": {"metadata": {"labels": _LABELS}, "spec": _POD_SPEC}}
_DEVICES: Object = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}
_POOL: Object = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
_RESOURCE = "resource.k8s.io/v1"

SAMPLES: dict[str, tuple[str, str, bool, Object]] = {
    "configmaps": ("v1", "ConfigMap", True, {"data": {"color": "red", "size": "10"}}),
    "secrets": ("v1", "Secret", True, {"data": {"key": "dmFsdWU="}}),
    "serviceaccounts": ("v1", "ServiceAccount", True, {}),
    "resourcequotas": ("v1", "ResourceQuota", True, {"spec": {"hard": {"count/leases.coordination.k8s.io": "9"}}}),
    "events": ("v1", "Event", True, {"involvedObject": {"kind": "Pod", "name": "a", "namespace": "{{ns}}"}, "reason": "Seen", "type": "Normal"}),
    "pods": ("v1", "Pod", True, {"spec": _POD_SPEC}),
    "nodes": ("v1", "Node", False, {}),
    "namespaces": ("v1", "Namespace", False, {}),
    "deployments": ("apps/v1", "Deployment", True, {"spec": _WORKLOAD}),
    "replicasets": ("apps/v1", "ReplicaSet", True, {"spec": _WORKLOAD}),
    "jobs": ("batch/v1", "Job", True, {"spec": {"template": {"spec": {**_POD_SPEC, "restartPolicy": "Never"}}}}),
    "leases": ("coordination.k8s.io/v1", "Lease", True, {"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}),
    "poddisruptionbudgets": ("policy/v1", "PodDisruptionBudget", True, {"spec": {"minAvailable": 1, "selector": {"matchLabels": _LABELS}}}),
    "priorityclasses": ("scheduling.k8s.io/v1", "PriorityClass", False, {"value": 1000}),
    "deviceclasses": (_RESOURCE, "DeviceClass", False, {"spec": {}}),
    "resourceclaims": (_RESOURCE, "ResourceClaim", True, {"spec": {"devices": _DEVICES}}),
    "resourceclaimtemplates": (_RESOURCE, "ResourceClaimTemplate", True, {"spec": {"spec": {"devices": _DEVICES}}}),
    "resourceslices": (_RESOURCE, "ResourceSlice", False, {"spec": {"driver": "gpu.example.com", "nodeName": "node-1", "pool": _POOL, "devices": [{"name": "gpu-0"}]}}),
}
"""A small valid object of each kind: its apiVersion, its kind, whether it has a namespace, its other fields."""


def sample(plural: str, name: str = NAME, **metadata: Any) -> Object:
    """The small valid object of a kind, with a name and more metadata."""
    api_version, kind, _, content = SAMPLES[plural]
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}, **copy.deepcopy(content)}


def collection(plural: str) -> str:
    """The path of the objects of a kind, in the namespace of the case where they have one."""
    api_version, _, namespaced, _ = SAMPLES[plural]
    root = "api" if "/" not in api_version else "apis"
    return f"/{root}/{api_version}{'/namespaces/{{ns}}' if namespaced else ''}/{plural}"


def path_of(plural: str, name: str = NAME) -> str:
    """The path of one object."""
    return f"{collection(plural)}/{name}"


def request(method: str, target: str, body: Any = None, kind: str = JSON, **more: Any) -> Step:
    """A request; a body that is no text is sent as JSON. ``more`` are other fields of the step."""
    step: Step = {"method": method, "target": target, **more}
    headers = dict(more.get("headers", {}))
    if body is not None:
        step["body"] = body if isinstance(body, str) else json.dumps(body)
        headers["Content-Type"] = kind
    return step | ({"headers": headers} if headers else {})


def get(target: str, **more: Any) -> Step:
    """A GET."""
    return request("GET", target, **more)


def create(plural: str, item: Any = None, query: str = "", **more: Any) -> Step:
    """A POST of an object, by default of the sample, to the collection of its kind."""
    return request("POST", collection(plural) + query, sample(plural) if item is None else item, **more)


def put(plural: str, item: Any, query: str = "", name: str = NAME) -> Step:
    """A PUT of an object."""
    return request("PUT", path_of(plural, name) + query, item)


def patch(plural: str, body: Any, kind: str = MERGE, query: str = "", name: str = NAME) -> Step:
    """A PATCH of one kind."""
    return request("PATCH", path_of(plural, name) + query, body, kind)


def apply(plural: str, item: Any, query: str = "fieldManager=one", below: str = "") -> Step:
    """A server-side apply."""
    return request("PATCH", f"{path_of(plural)}{below}?{query}", item, APPLY)


def delete(plural: str, body: Any = None, query: str = "", name: str = NAME) -> Step:
    """A DELETE of one object, with DeleteOptions where ``body`` is given."""
    return request("DELETE", path_of(plural, name) + query, body)


def case(name: str, *steps: Step) -> Case:
    """A case of that name, which says what differs from the cases beside it."""
    return {"name": name, "steps": list(steps)}
