"""Words to write cases with: requests, and the objects that they send."""

from __future__ import annotations

import copy
import json
from typing import Any

from tools.conformance.api.connection import Step
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

_CONTAINER: Object = {"name": "main", "image": "registry.example/a:1"}
_POD_SPEC: Object = {"containers": [_CONTAINER]}
_LABELS = {"app": "web"}
_TEMPLATE: Object = {"metadata": {"labels": _LABELS}, "spec": _POD_SPEC}
_WORKLOAD: Object = {"selector": {"matchLabels": _LABELS}, "template": _TEMPLATE}
_DEVICES: Object = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}
_RULES: list[Object] = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]

SAMPLES: dict[str, tuple[str, str, bool, Object]] = {
    "configmaps": ("v1", "ConfigMap", True, {"data": {"color": "red", "size": "10"}}),
    "secrets": ("v1", "Secret", True, {"data": {"key": "dmFsdWU="}}),
    "serviceaccounts": ("v1", "ServiceAccount", True, {}),
    "services": ("v1", "Service", True, {"spec": {"clusterIP": "None", "selector": _LABELS}}),
    "limitranges": ("v1", "LimitRange", True, {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "2"}}]}}),
    "resourcequotas": ("v1", "ResourceQuota", True, {"spec": {"hard": {"count/leases.coordination.k8s.io": "9"}}}),
    "events": ("v1", "Event", True, {"involvedObject": {"kind": "Pod", "name": "a", "namespace": "{{ns}}"}, "reason": "Seen", "type": "Normal"}),
    "pods": ("v1", "Pod", True, {"spec": _POD_SPEC}),
    "nodes": ("v1", "Node", False, {}),
    "namespaces": ("v1", "Namespace", False, {}),
    "deployments": ("apps/v1", "Deployment", True, {"spec": _WORKLOAD}),
    "replicasets": ("apps/v1", "ReplicaSet", True, {"spec": _WORKLOAD}),
    "daemonsets": ("apps/v1", "DaemonSet", True, {"spec": _WORKLOAD}),
    "jobs": ("batch/v1", "Job", True, {"spec": {"template": {"spec": {**_POD_SPEC, "restartPolicy": "Never"}}}}),
    "leases": ("coordination.k8s.io/v1", "Lease", True, {"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}),
    "networkpolicies": ("networking.k8s.io/v1", "NetworkPolicy", True, {"spec": {"podSelector": {}}}),
    "poddisruptionbudgets": ("policy/v1", "PodDisruptionBudget", True, {"spec": {"minAvailable": 1, "selector": {"matchLabels": _LABELS}}}),
    "roles": ("rbac.authorization.k8s.io/v1", "Role", True, {"rules": _RULES}),
    "rolebindings": (
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        True,
        {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}, "subjects": [{"kind": "User", "name": "a"}]},
    ),
    "clusterroles": ("rbac.authorization.k8s.io/v1", "ClusterRole", False, {"rules": _RULES}),
    "clusterrolebindings": (
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        False,
        {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "a"}, "subjects": [{"kind": "User", "name": "a"}]},
    ),
    "priorityclasses": ("scheduling.k8s.io/v1", "PriorityClass", False, {"value": 1000}),
    "deviceclasses": ("resource.k8s.io/v1", "DeviceClass", False, {"spec": {}}),
    "resourceclaims": ("resource.k8s.io/v1", "ResourceClaim", True, {"spec": {"devices": _DEVICES}}),
    "resourceclaimtemplates": ("resource.k8s.io/v1", "ResourceClaimTemplate", True, {"spec": {"spec": {"devices": _DEVICES}}}),
    "resourceslices": (
        "resource.k8s.io/v1",
        "ResourceSlice",
        False,
        {
            "spec": {
                "driver": "gpu.example.com",
                "nodeName": "node-1",
                "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "gpu-0"}],
            }
        },
    ),
}
"""A small valid object of each kind: its apiVersion, its kind, whether it has a namespace, its other fields."""


def sample(plural: str, name: str = NAME, **metadata: Any) -> Object:
    """The small valid object of a kind, with a name and more metadata."""
    api_version, kind, _, content = SAMPLES[plural]
    item = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}}
    return item | copy.deepcopy(content)


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
        raw = isinstance(body, str) or (isinstance(body, list) and bool(body) and isinstance(body[0], list))
        step["body"] = body if raw else json.dumps(body)
        if kind:
            headers.setdefault("Content-Type", kind)
    if headers:
        step["headers"] = headers
    return step


def get(target: str, **more: Any) -> Step:
    """A GET."""
    return request("GET", target, **more)


def accepting(target: str, accept: str) -> Step:
    """A GET with an Accept header."""
    return request("GET", target, headers={"Accept": accept})


def create(plural: str, item: Any = None, query: str = "", **more: Any) -> Step:
    """A POST of an object, by default of the sample, to the collection of its kind."""
    return request("POST", collection(plural) + query, sample(plural) if item is None else item, **more)


def put(plural: str, item: Any, query: str = "", name: str = NAME, **more: Any) -> Step:
    """A PUT of an object."""
    return request("PUT", path_of(plural, name) + query, item, **more)


def patch(plural: str, body: Any, kind: str = MERGE, query: str = "", name: str = NAME) -> Step:
    """A PATCH of one kind."""
    return request("PATCH", path_of(plural, name) + query, body, kind)


def delete(plural: str, body: Any = None, query: str = "", name: str = NAME) -> Step:
    """A DELETE of one object, with DeleteOptions where ``body`` is given."""
    return request("DELETE", path_of(plural, name) + query, body)


def case(name: str, *steps: Step) -> Case:
    """A case of that name, which says what differs from the cases beside it."""
    return {"name": name, "steps": list(steps)}
