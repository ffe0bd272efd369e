"""Shows Deployments, ReplicaSets and Jobs as the columns of ``kubectl get`` have them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from envtest.embedded.shown.ages import age_of, duration_text
from kubernetes_rules.label_selectors import selector_text

Object = dict[str, Any]

_STATES = (
    *(("Complete", "Complete"), ("Failed", "Failed"), ("", "Terminating")),
    *(("Suspended", "Suspended"), ("FailureTarget", "FailureTarget")),
    ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)
"""Conditions of a Job, the most telling first, and what is shown of each; that of no name is its deletion."""


def deployment_cells(item: Object) -> list[Any]:
    """Name, ready pods of the wanted, new pods, available pods, age, and what they run."""
    status, wanted = item.get("status") or {}, _wanted(item)
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    ready = f"{status.get('readyReplicas', 0)}/{wanted}"
    return [item["metadata"]["name"], ready, *counts, _age(item), *_of_pods(item)]


def replica_set_cells(item: Object) -> list[Any]:
    """Name, wanted pods, pods, ready pods, age, and what they run."""
    status = item.get("status") or {}
    counts = [_wanted(item), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [item["metadata"]["name"], *counts, _age(item), *_of_pods(item)]


def scale_cells(item: Object) -> list[Any]:
    """Name, wanted pods, pods and age of a Scale."""
    counts = [(item.get(part) or {}).get("replicas", 0) for part in ("spec", "status")]
    return [item["metadata"]["name"], *counts, _age(item)]


def job_cells(item: Object) -> list[Any]:
    """Name, how it is, pods that succeeded of the wanted, how long it takes or took, age, what they run."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    done, parallelism = status.get("succeeded", 0), spec.get("parallelism") or 0
    completions = f"{done}/{spec.get('completions', 1)}"
    if "completions" not in spec and parallelism > 1:
        completions = f"{done}/1 of {parallelism}"
    cells = [item["metadata"]["name"], _state(item), completions, _taken(status)]
    return [*cells, _age(item), *_of_pods(item)]


def _state(job: Object) -> str:
    conditions = (job.get("status") or {}).get("conditions") or []
    held = {one["type"] for one in conditions if one.get("status") == "True"}
    if "deletionTimestamp" in job["metadata"]:
        held.add("")
    return next((text for kind, text in _STATES if kind in held), "Running")


def _taken(status: Object) -> str:
    if not status.get("startTime"):
        return ""
    end = status.get("completionTime")
    moment = datetime.fromisoformat(end) if end else datetime.now(UTC)
    return duration_text(moment - datetime.fromisoformat(status["startTime"]))


def _of_pods(item: Object) -> list[str]:
    """Containers, images and selector."""
    spec = item.get("spec") or {}
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or []
    listed = [",".join(one.get(name, "") for one in containers) for name in ("name", "image")]
    return [*listed, selector_text(spec.get("selector"))]


def _wanted(item: Object) -> int:
    return int((item.get("spec") or {}).get("replicas", 1))


def _age(item: Object) -> str:
    return age_of(item["metadata"].get("creationTimestamp"))
