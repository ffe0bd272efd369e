"""Counts a Deployment's pods into its status, and says whether its rollout gets on.

Go: calculateStatus in pkg/controller/deployment/sync.go, and progress.go beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from envtest.embedded.control.objects import now
from envtest.embedded.control.workloads.rollout import most_unavailable, size, sizes, total
from kubernetes_rules.workload_defaults import UNLIMITED

Json = Mapping[str, Any]
Object = dict[str, Any]

PROGRESSING, AVAILABLE, FAILURE = "Progressing", "Available", "ReplicaFailure"
NEW_IS_AVAILABLE, TIMED_OUT = "NewReplicaSetAvailable", "ProgressDeadlineExceeded"
PAUSED, RESUMED = "DeploymentPaused", "DeploymentResumed"


def has_deadline(deployment: Json) -> bool:
    """Whether anybody wants to know when a rollout gets stuck."""
    return deployment["spec"].get("progressDeadlineSeconds") not in (None, UNLIMITED)


def condition_of(status: Json, kind: str) -> Object | None:
    """The condition of a kind, None where there is none."""
    return next((one for one in status.get("conditions") or () if one["type"] == kind), None)


def with_condition(status: Json, kind: str, value: str, reason: str, message: str) -> Object:
    """The status with a condition; one of the same value and reason stays as it was said first."""
    known = condition_of(status, kind)
    if known is not None and (known["status"], known["reason"]) == (value, reason):
        return dict(status)
    since = known["lastTransitionTime"] if known is not None and known["status"] == value else now()
    told = {"type": kind, "status": value, "reason": reason, "message": message}
    new = {**told, "lastUpdateTime": now(), "lastTransitionTime": since}
    return {**without(status, kind), "conditions": [*_others(status, kind), new]}


def without(status: Json, kind: str) -> Object:
    """The status without a condition."""
    others = _others(status, kind)
    found = {key: value for key, value in status.items() if key != "conditions"}
    return {**found, "conditions": others} if others else found


def counted(deployment: Json, new: Json | None, old: Sequence[Json]) -> Object:
    """The status from those of its ReplicaSets; its progress is not judged."""
    sets = [*old, *([new] if new is not None else [])]
    available = total(sets, "availableReplicas")
    before = deployment.get("status") or {}
    counts = {
        "replicas": total(sets, "replicas"),
        "updatedReplicas": total([new] if new is not None else [], "replicas"),
        "readyReplicas": total(sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sizes(sets) - available),
    }
    status = {
        "observedGeneration": deployment["metadata"]["generation"],
        **{name: count for name, count in counts.items() if count},
        "terminatingReplicas": total(sets, "terminatingReplicas"),
        **{key: before[key] for key in ("conditions", "collisionCount") if key in before},
    }
    if available >= size(deployment) - most_unavailable(deployment):
        text = "Deployment has minimum availability."
        return with_condition(status, AVAILABLE, "True", "MinimumReplicasAvailable", text)
    text = "Deployment does not have minimum availability."
    return with_condition(status, AVAILABLE, "False", "MinimumReplicasUnavailable", text)


def rolled_out(deployment: Json, new: Json | None, old: Sequence[Json]) -> Object:
    """The status of a Deployment that is rolled out: how it gets on, and what its ReplicaSets failed at."""
    status, before = counted(deployment, new, old), deployment.get("status") or {}
    known = condition_of(before, PROGRESSING)
    ended = known is not None and known["reason"] == NEW_IS_AVAILABLE
    if not has_deadline(deployment):
        status = without(status, PROGRESSING)
    elif not (ended and status.get("replicas", 0) == status.get("updatedReplicas", 0)):
        name = deployment["metadata"]["name"]
        subject = f'Deployment "{name}"' if new is None else f'ReplicaSet "{new["metadata"]["name"]}"'
        status = _progressed(deployment, status, subject)
    failure = next(
        (found for one in [new, *old] if one and (found := condition_of(one.get("status") or {}, FAILURE))),
        None,
    )
    if failure is None:
        return without(status, FAILURE)
    return with_condition(status, FAILURE, failure["status"], failure["reason"], failure["message"])


def is_complete(deployment: Json, status: Json) -> bool:
    """Whether all pods are new and available, and no others are there."""
    wanted = size(deployment)
    counts = [status.get(name, 0) for name in ("updatedReplicas", "replicas", "availableReplicas")]
    seen = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    return counts == [wanted] * 3 and seen


def seconds_to_deadline(deployment: Json, status: Json) -> float | None:
    """When a rollout that gets on no further will have timed out; None where nothing is awaited."""
    known = condition_of(status, PROGRESSING)
    if not has_deadline(deployment) or known is None or known["reason"] in (TIMED_OUT, NEW_IS_AVAILABLE):
        return None
    if is_complete(deployment, status):
        return None
    return max(0.0, float(deployment["spec"]["progressDeadlineSeconds"]) - _age(known)) + 1.0


def _progressed(deployment: Json, status: Object, subject: str) -> Object:
    if is_complete(deployment, status):
        text = f"{subject} has successfully progressed."
        return with_condition(status, PROGRESSING, "True", NEW_IS_AVAILABLE, text)
    known = condition_of(status, PROGRESSING)
    if _gets_on(deployment.get("status") or {}, status):
        kept = known["lastTransitionTime"] if known is not None and known["status"] == "True" else now()
        text = f"{subject} is progressing."
        status = without(status, PROGRESSING)
        status = with_condition(status, PROGRESSING, "True", "ReplicaSetUpdated", text)
        status["conditions"][-1]["lastTransitionTime"] = kept
        return status
    if known is None or known["reason"] == NEW_IS_AVAILABLE:
        return status
    late = known["reason"] == TIMED_OUT or _age(known) > deployment["spec"]["progressDeadlineSeconds"]
    text = f"{subject} has timed out progressing."
    return with_condition(status, PROGRESSING, "False", TIMED_OUT, text) if late else status


def _gets_on(before: Json, status: Json) -> bool:
    def old_pods(one: Json) -> int:
        return int(one.get("replicas", 0)) - int(one.get("updatedReplicas", 0))

    more = any(
        status.get(name, 0) > before.get(name, 0)
        for name in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )
    return more or old_pods(status) < old_pods(before)


def _age(condition: Json) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(condition["lastUpdateTime"])).total_seconds()


def _others(status: Json, kind: str) -> list[Object]:
    return [one for one in status.get("conditions") or () if one["type"] != kind]
