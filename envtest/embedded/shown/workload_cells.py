"""Workloads as ``kubectl get`` shows them. Go: kubernetes/pkg/printers/internalversion, printDeployment."""

from __future__ import annotations

from typing import Any

from envtest.embedded.shown.ages import age_of, time_taken
from kubernetes_rules.selectors import label_selector_text

Object = dict[str, Any]
Cells = list[Any]

_STATES = (
    *(("Complete", "Complete"), ("Failed", "Failed"), ("", "Terminating")),
    *(("Suspended", "Suspended"), ("FailureTarget", "FailureTarget")),
    ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)
"""Conditions of a Job, the most important first, with the word for each; the empty name is a deletion."""


def deployment_cells(item: Object) -> Cells:
    """Name, ready and wanted pods, updated pods, available pods, age, and what the pods run."""
    status, wanted = item.get("status") or {}, _wanted(item)
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    ready = f"{status.get('readyReplicas', 0)}/{wanted}"
    return [item["metadata"]["name"], ready, *counts, _age(item), *_of_pods(item)]


def replica_set_cells(item: Object) -> Cells:
    """Name, wanted pods, pods, ready pods, age, and what the pods run."""
    status = item.get("status") or {}
    counts = [_wanted(item), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [item["metadata"]["name"], *counts, _age(item), *_of_pods(item)]


def scale_cells(item: Object) -> Cells:
    """Name, wanted pods, pods and age of a Scale."""
    counts = [(item.get(part) or {}).get("replicas", 0) for part in ("spec", "status")]
    return [item["metadata"]["name"], *counts, _age(item)]


def job_cells(item: Object) -> Cells:
    """Name, state, succeeded and wanted pods, duration, age, and what the pods run."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    done, parallelism = status.get("succeeded", 0), spec.get("parallelism") or 0
    completions = f"{done}/{spec.get('completions', 1)}"
    if "completions" not in spec and parallelism > 1:
        # Without completions, one pod that succeeds ends the work of all.
        completions = f"{done}/1 of {parallelism}"
    cells = [
        item["metadata"]["name"],
        _job_state(item),
        completions,
        time_taken(status.get("startTime"), status.get("completionTime")),
    ]
    return [*cells, _age(item), *_of_pods(item)]


def _job_state(job: Object) -> str:
    conditions = (job.get("status") or {}).get("conditions") or []
    held = {one["type"] for one in conditions if one.get("status") == "True"}
    if "deletionTimestamp" in job["metadata"]:
        held.add("")
    return next((text for kind, text in _STATES if kind in held), "Running")


def _of_pods(item: Object) -> list[str]:
    """Containers, images and selector."""
    spec = item.get("spec") or {}
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or []
    listed = [",".join(one.get(name, "") for one in containers) for name in ("name", "image")]
    return [*listed, label_selector_text(spec.get("selector")) or "<none>"]


def _wanted(item: Object) -> int:
    return int((item.get("spec") or {}).get("replicas", 1))


def _age(item: Object) -> str:
    return age_of(item["metadata"].get("creationTimestamp"))
