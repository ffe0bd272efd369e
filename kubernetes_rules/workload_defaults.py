"""Fills in what the API server fills in where a Deployment, a ReplicaSet, a DaemonSet or a Job leaves it out.

Go: pkg/apis/apps/v1/defaults.go, pkg/apis/batch/v1/defaults.go, and generateSelector in
pkg/registry/batch/job/strategy.go. Workloads are JSON as apps/v1 and batch/v1 have them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from kubernetes_rules.pod_defaults import defaulted_template

Object = dict[str, Any]

UNLIMITED = 2**31 - 1
"""A number that stands for no limit, where the API has none for that."""

JOB_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")
JOB_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
"""Labels of a Job's pods, the older name of each first; the Job selects by the newer one."""

_ROLLING_UPDATE: dict[str, Object] = {
    "Deployment": {"maxUnavailable": "25%", "maxSurge": "25%"},
    "DaemonSet": {"maxUnavailable": 1, "maxSurge": 0},
}
_JOB: Object = {"completionMode": "NonIndexed", "suspend": False, "manualSelector": False}


def defaulted_workload(workload: Mapping[str, Any], *, is_new: bool) -> Object:
    """A workload with its defaults; the one that is given stays as it is.

    A new Job, which has to have its name and UID, gets the labels and the selector of its pods.
    """
    found = copy.deepcopy(dict(workload))
    spec = found["spec"] = found.get("spec") or {}
    spec["template"] = defaulted_template(spec.get("template") or {})
    match found["kind"]:
        case "Deployment":
            _fill(spec, {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600})
            _default_strategy(spec, "strategy", "Deployment")
        case "ReplicaSet":
            _fill(spec, {"replicas": 1})
        case "DaemonSet":
            _fill(spec, {"revisionHistoryLimit": 10})
            _default_strategy(spec, "updateStrategy", "DaemonSet")
        case "Job":
            _default_job(found, is_new=is_new)
    return found


def _default_strategy(spec: Object, field: str, kind: str) -> None:
    strategy = spec[field] = spec.get(field) or {}
    strategy["type"] = strategy.get("type") or "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = strategy.get("rollingUpdate") or {}
        _fill(strategy["rollingUpdate"], _ROLLING_UPDATE[kind])


def _default_job(job: Object, *, is_new: bool) -> None:
    spec = job["spec"]
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    per_index = spec.get("backoffLimitPerIndex") is not None
    replaced = "Failed" if spec.get("podFailurePolicy") is not None else "TerminatingOrFailed"
    limit = UNLIMITED if per_index else 6
    _fill(spec, {"parallelism": 1, "backoffLimit": limit, "podReplacementPolicy": replaced, **_JOB})
    if is_new and not spec["manualSelector"]:
        _select_own_pods(job)
    _take_labels(job)


def _select_own_pods(job: Object) -> None:
    """Give a Job's pods labels of their own, and select by them; what is there stays."""
    metadata, spec = job["metadata"], job["spec"]
    template = spec["template"]["metadata"] = spec["template"].get("metadata") or {}
    labels = template["labels"] = template.get("labels") or {}
    _fill(labels, dict.fromkeys(JOB_NAME_LABELS, metadata["name"]))
    _fill(labels, dict.fromkeys(JOB_UID_LABELS, metadata["uid"]))
    selector = spec["selector"] = spec.get("selector") or {}
    selector["matchLabels"] = selector.get("matchLabels") or {}
    _fill(selector["matchLabels"], {JOB_UID_LABELS[1]: metadata["uid"]})


def _take_labels(workload: Object) -> None:
    """A workload without labels is shown with those of its template."""
    labels = (workload["spec"]["template"].get("metadata") or {}).get("labels")
    if labels and not workload["metadata"].get("labels"):
        workload["metadata"]["labels"] = dict(labels)


def _fill(holder: Object, defaults: Mapping[str, Any]) -> None:
    for name, value in defaults.items():
        if holder.get(name) is None:
            holder[name] = value
