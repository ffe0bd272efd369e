"""Counts the pods of a Job, and decides whether it has ended. Go: pkg/controller/job/job_controller.go.

Jobs and pods are JSON as batch/v1 and core/v1 have them, with their defaults.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from envtest.embedded.control.objects import is_deleted, now
from envtest.embedded.control.workloads.owned_pods import is_active

Json = Mapping[str, Any]
Object = dict[str, Any]

COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
SUCCESS, FAILURE = "SuccessCriteriaMet", "FailureTarget"
INDEX = "batch.kubernetes.io/job-completion-index"
"""The label and the annotation of an indexed Job's pod that say which one it is."""

_LAST_OF = {SUCCESS: COMPLETE, FAILURE: FAILED}
_FIRST_BACK_OFF_SECONDS, _LAST_BACK_OFF_SECONDS = 10.0, 600.0


def is_finished(job: Json) -> bool:
    """Whether a Job is complete or has failed."""
    return any(holds(job.get("status") or {}, kind) for kind in (COMPLETE, FAILED))


def is_indexed(job: Json) -> bool:
    """Whether the pods of a Job are numbered."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def holds(status: Json, kind: str) -> bool:
    """Whether a condition is there and true."""
    return any(one["type"] == kind and one["status"] == "True" for one in status.get("conditions") or ())


def condition(kind: str, value: str, reason: str, message: str) -> Object:
    """A condition of a Job."""
    told = {"type": kind, "status": value, "reason": reason, "message": message}
    return {**told, "lastProbeTime": now(), "lastTransitionTime": now()}


def with_condition(status: Json, new: Object) -> Object:
    """The status with a condition; that one is not true is said only where it was."""
    known = next((one for one in status.get("conditions") or () if one["type"] == new["type"]), None)
    if known is None and new["status"] == "False":
        return dict(status)
    same = ("status", "reason", "message")
    if known is not None and [known.get(key) for key in same] == [new[key] for key in same]:
        return dict(status)
    others = [one for one in status.get("conditions") or () if one["type"] != new["type"]]
    return {**status, "conditions": [*others, new]}


def last_condition(ended: Json) -> Object:
    """The condition of a Job whose pods are gone, for the one that says how it will end."""
    return condition(_LAST_OF[ended["type"]], "True", ended["reason"], ended["message"])


def has_failed(pod: Json) -> bool:
    """Whether a pod of a Job counts as failed, one that somebody deleted among them."""
    phase = (pod.get("status") or {}).get("phase")
    return bool(phase == "Failed" or (is_deleted(pod) and phase != "Succeeded"))


def has_succeeded(pod: Json) -> bool:
    """Whether a pod has done its work."""
    return bool((pod.get("status") or {}).get("phase") == "Succeeded")


def how_it_ends(job: Json, pods: Sequence[Object], failed: int) -> Object | None:
    """The condition that a Job ends by; None for one that goes on. Success is looked at later."""
    status, spec = job.get("status") or {}, job["spec"]
    said = next((one for one in status.get("conditions") or () if one["type"] in _LAST_OF), None)
    if said is not None:
        return dict(said)
    if failed > spec["backoffLimit"] or _restarted_too_often(job, pods):
        text = "Job has reached the specified backoff limit"
        return condition(FAILURE, "True", "BackoffLimitExceeded", text)
    left = seconds_to_deadline(job)
    if left is not None and left <= 0:
        text = "Job was active longer than specified deadline"
        return condition(FAILURE, "True", "DeadlineExceeded", text)
    return None


def succeeds(job: Json, succeeded: int, active: int) -> bool:
    """Whether enough pods have succeeded, and none runs."""
    wanted = job["spec"].get("completions")
    return active == 0 and (succeeded > 0 if wanted is None else succeeded >= wanted)


def wanted_active(job: Json, succeeded: int, active: int) -> int:
    """How many pods of a Job are to run now."""
    wanted, parallelism = job["spec"].get("completions"), int(job["spec"]["parallelism"])
    if wanted is None:
        return active if succeeded else parallelism
    return max(0, min(int(wanted) - succeeded, parallelism))


def seconds_to_deadline(job: Json) -> float | None:
    """How long a Job may still be active; None without a limit."""
    limit, started = job["spec"].get("activeDeadlineSeconds"), (job.get("status") or {}).get("startTime")
    if limit is None or started is None or job["spec"].get("suspend"):
        return None
    return float(limit) - _since(started)


def seconds_to_removal(job: Json) -> float | None:
    """How long a finished Job is kept; None where it stays."""
    limit = job["spec"].get("ttlSecondsAfterFinished")
    ends = [one for one in job["status"]["conditions"] if one["type"] in (COMPLETE, FAILED)]
    return None if limit is None else max(0.0, limit - _since(ends[-1]["lastTransitionTime"]))


def back_off_seconds(failures: int) -> float:
    """How long after a pod failed the next one is made; ``failures`` are those since the last success."""
    if not failures:
        return 0.0
    return min(_FIRST_BACK_OFF_SECONDS * 2.0 ** min(failures - 1, 30), _LAST_BACK_OFF_SECONDS)


def ended_at(pod: Json) -> datetime:
    """When a pod ended: its last container did, else it was no longer ready, was deleted, or was created."""
    status, metadata = pod.get("status") or {}, pod["metadata"]
    ends = [
        (one.get("state") or {}).get("terminated", {}).get("finishedAt")
        for one in status.get("containerStatuses") or ()
    ]
    if ends and all(ends):
        return max(map(datetime.fromisoformat, ends))
    for one in status.get("conditions") or ():
        if one["type"] == "Ready" and one["status"] == "False" and one.get("lastTransitionTime"):
            return datetime.fromisoformat(one["lastTransitionTime"])
    return datetime.fromisoformat(metadata.get("deletionTimestamp") or metadata["creationTimestamp"])


def index_of(pod: Json) -> int | None:
    """The number of an indexed Job's pod."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdecimal() else None


def indexes_in(text: str) -> set[int]:
    """The numbers of a text such as ``0-2,5``."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def indexes_text(indexes: Iterable[int]) -> str:
    """Numbers as a text such as ``0-2,5``."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(
        str(first) if first == last else f"{first}-{last}" if last > first + 1 else f"{first},{last}"
        for first, last in runs
    )


def pending_indexes(job: Json, done: Collection[int], pods: Iterable[Object]) -> list[int]:
    """The numbers of which an indexed Job has no pod, and needs one."""
    taken = {index_of(pod) for pod in pods if is_active(pod)} | set(done)
    return [index for index in range(job["spec"]["completions"]) if index not in taken]


def _restarted_too_often(job: Json, pods: Iterable[Json]) -> bool:
    """Containers that are started again in their pods count as failures, too."""
    if job["spec"]["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    statuses = [pod.get("status") or {} for pod in pods]
    count = sum(
        int(one.get("restartCount", 0))
        for status in statuses
        if status.get("phase") in ("Running", "Pending")
        for kind in ("initContainerStatuses", "containerStatuses")
        for one in status.get(kind) or ()
    )
    limit = job["spec"]["backoffLimit"]
    return count > 0 if limit == 0 else count >= limit


def _since(text: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()
