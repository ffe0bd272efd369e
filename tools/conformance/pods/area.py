"""Compares pods as the embedded API server stores them: their defaults, and the texts of errors."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from random import Random
from typing import Any

from kubernetes_rules.defaults import created_pod, defaulted_pod, defaulted_template
from kubernetes_rules.validation.field import FieldError
from kubernetes_rules.validation.pods import pod_errors, pod_update_errors, workload_errors
from tools.conformance.area import Answer, Area, Case
from tools.conformance.pods.cases import valid_pods, workload, written_cases
from tools.conformance.validation.area import KeyPath, places

Object = dict[str, Any]
_MOST_CHANGES = 4
_KEPT = frozenset({"apiVersion", "kind", "uid", "resourceVersion"})
# Left out by the rules, or filled in by the API server with defaults that are not implemented here.
_UNCOMPARED = ("livenessProbe", "lifecycle", "securityContext")
_POD_RESOURCES = ("spec", "resources")
"""A field whose defaults differ between Kubernetes 1.36 and 1.37."""
_TEXTS = (
    "", "a", "main", "helper", "setup", "gpu", "shared", "half", "scratch", "host", "disk", "Upper", "a_b",
    "a b", "a.b", "a.b/c", "A.b/C", "a/b/c", "/a", "a/", "-a", "a-", "a..b", "1a", "é", "a" * 16, "a" * 64,
    "a" * 254, "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "Always", "Never", "OnFailure",
    "IfNotPresent", "Sometimes", "NoSchedule", "NoExecute", "PreferNoSchedule", "metadata.name", "TCP",
    "..", "../a", "/a/../b", "..a", "/scratch", "/dev/disk", "node-1", " a", "Restart", "Enabled",
)  # fmt: skip
_AMOUNTS = (
    "0", "1", "2", "3", "-1", "500m", "0.5", "1500m", "2000m", "1u", "100m", "1Gi", "1024Mi", "2Gi", "1e3",
    "1k", "3Mi", "4Mi", "128Mi", "9223372036854775808", "0.0001", "2.0",
)  # fmt: skip
_CANONICAL_AMOUNTS = ("0", "1", "-1", "1m", "500m", "1Ki", "1Gi", "3Mi", "1k")
_RESOURCES = (
    "cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "amd.com/gpu", "gpu", "pods", "storage",
    "requests.cpu", "requests.nvidia.com/gpu", "a b", "a/b/c", "/gpu", "Upper.com/gpu", "kubernetes.io/gpu",
    "deviceclass.resource.kubernetes.io/gpu.example.com", "hugepages-2Mi", "hugepages-x", "hugepages-1Gi",
)  # fmt: skip
_FIELDS = ("spec.nodeName", "metadata.labels['a']", "metadata.labels['a b']", "status.phase", "x", "")
_RESOURCE_FIELDS = ("limits.cpu", "requests.memory", "limits.hugepages-2Mi", "limits.nvidia.com/gpu", "")
_LABEL_VALUES = ("", "a", "b c", "-a", "A_b", "a" * 64, "é")
_IMAGES = ("", "a", "a:latest", "a:1", "b.example/a:1@sha256:" + "b" * 64, "localhost:5000/a", " a")


def _random(rng: Random) -> Case:
    """A pod after some changes: as a new pod, or as an update of the unchanged one."""
    pod = rng.choice(valid_pods())
    item = copy.deepcopy(pod)
    for _ in range(rng.randint(0, _MOST_CHANGES)):
        _mutate(rng, item)
    if rng.random() < 0.1 and "spec" in item:
        # Only since 1.37 an image volume in a template needs a reference.
        item["spec"]["volumes"] = [one for one in item["spec"].get("volumes") or [] if "image" not in one]
        return {"op": "pod", "object": workload(rng.choice(("Deployment", "DaemonSet")), item)}
    if rng.random() < 0.6 or _POD_RESOURCES[-1] in pod["spec"] or "metadata" not in item:
        return {"op": "pod", "object": item}
    item["metadata"]["name"] = pod["metadata"]["name"]
    return {"op": "pod", "object": item, "old": pod}


def _mutate(rng: Random, item: Object) -> None:
    """Change one place; types stay right."""
    found = list(places(item, _is_left_out))
    if not found:
        return
    holder, key, path = rng.choice(found)
    value = holder[key]
    if rng.random() < 0.15:
        del holder[key]
    elif isinstance(value, bool):
        holder[key] = not value
    elif isinstance(value, int):
        holder[key] = rng.choice((-1, 0, 1, 2, 80, 90, 511, 70_000, 2**31 - 1))
    elif isinstance(value, str):
        holder[key] = rng.choice(_values_for(path))
    elif isinstance(value, list) and value:
        value.append(copy.deepcopy(rng.choice(value)))
    elif isinstance(value, dict) and value:
        _mutate_map(rng, value, path)


def _mutate_map(rng: Random, value: Object, path: KeyPath) -> None:
    """Remove an entry of a map, or rename it if the map has free keys."""
    key = rng.choice([key for key in value if key not in _KEPT] or [None])
    if key is None:
        return
    taken = value.pop(key)
    if path[-1] in ("limits", "requests", "labels", "annotations", "nodeSelector"):
        value[rng.choice(_values_for((*path, "")))] = taken


def _is_left_out(path: KeyPath) -> bool:
    return path[-1] in _KEPT or path[-1] in (*_UNCOMPARED, "namespace") or path == _POD_RESOURCES


def _values_for(path: KeyPath) -> Sequence[str]:
    """Valid and invalid texts for a place, by its path; an empty last key asks for names of keys."""
    parent, field = (path[-2] if len(path) > 1 else ""), path[-1]
    if parent in ("limits", "requests"):
        return _AMOUNTS if field else _RESOURCES
    if field in ("sizeLimit", "divisor"):
        return _CANONICAL_AMOUNTS
    special: dict[Any, Sequence[str]] = {
        "fieldPath": _FIELDS,
        "resource": _RESOURCE_FIELDS,
        "image": _IMAGES,
        "reference": _IMAGES,
    }
    if parent in ("labels", "nodeSelector") and field:
        return _LABEL_VALUES
    return special.get(field, _TEXTS)


def _difference(case: Case, answer: Answer) -> str | None:
    if "error" in answer:
        return f"the oracle answered {answer['error']!r}"
    spec, found = _made_here(case)
    # Kubernetes adds a diff to the error of a forbidden update, with Go's field names.
    ours = {str(error).partition("\n")[0] for error in found}
    theirs = {text.partition("\n")[0] for text in answer.get("errors") or ()}
    if ours != theirs:
        return f"only ours: {sorted(ours - theirs)}; only Kubernetes': {sorted(theirs - ours)}"
    if "spec" not in answer:
        return None
    stored = answer["spec"] if case["object"]["kind"] == "Pod" else answer["spec"]["template"]["spec"]
    if _plain(spec) == _plain(stored):
        return None
    return f"stored here: {_plain(spec)}; by Kubernetes: {_plain(stored)}"


def _made_here(case: Case) -> tuple[Object, list[FieldError]]:
    """The spec of the pod, or of the template of the workload, with its defaults, and its errors."""
    item = case["object"]
    if item["kind"] != "Pod":
        template = defaulted_template(item["spec"]["template"])
        return template["spec"], workload_errors({**item, "spec": {**item["spec"], "template": template}})
    if "old" not in case:
        pod = created_pod(item)
        return pod["spec"], pod_errors(pod)
    pod = defaulted_pod(item)
    return pod["spec"], pod_update_errors(pod, defaulted_pod(case["old"]))


def _plain(spec: Object) -> Any:
    """A spec without empty fields and without pod-level limits, for which 1.36 has no defaults."""
    requests = (spec.get("resources") or {}).get("requests")
    return _without_empty({**spec, "resources": {"requests": requests}})


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _without_empty(one) for key, one in value.items() if key not in _UNCOMPARED}
        return {key: one for key, one in kept.items() if one}
    return [_without_empty(one) for one in value] if isinstance(value, list) else value


AREA = Area("pods", lambda: list(written_cases()), _random, _difference)
