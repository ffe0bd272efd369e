"""Makes the pods of Jobs, counts each of them once, and ends the Jobs. Go: pkg/controller/job.

A pod of a Job has a finalizer until it is counted, so none is lost that somebody deletes. Left out are the
policies for failures, success and scheduling, back-offs for each index, and Jobs of other controllers.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from envtest.embedded.api.defaults import now
from envtest.embedded.api.statuses import Refused
from envtest.embedded.control.change_loop import AGAIN_SECONDS
from envtest.embedded.control.change_loop import back_off_seconds as refused_seconds
from envtest.embedded.control.objects import JOBS, PODS, Objects, is_deleted, uid_of
from envtest.embedded.control.workloads.owned_pods import (
    OwnedPods,
    first_to_go,
    is_active,
    is_terminating,
    pod_of,
    ready_since,
)

Object = dict[str, Any]

_COMPONENT = "job-controller"
FINALIZER = "batch.kubernetes.io/job-tracking"
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_MOST_AT_ONCE = 500

Json = Mapping[str, Any]

COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
SUCCESS, FAILURE = "SuccessCriteriaMet", "FailureTarget"
INDEX = "batch.kubernetes.io/job-completion-index"
"""The label and the annotation of an indexed Job's pod that say which one it is."""

_LAST_OF = {SUCCESS: COMPLETE, FAILURE: FAILED}
_FIRST_BACK_OFF_SECONDS, _LAST_BACK_OFF_SECONDS = 10.0, 600.0


@dataclass(frozen=True, slots=True)
class _Failures:
    """How many pods of a Job failed since the last that succeeded, and when the last did."""

    count: int = 0
    last: datetime | None = None


@dataclass(slots=True)
class _Turn:
    """One look at a Job: its pods, its status as it becomes, and what is decided on the way."""

    job: Object
    pods: list[Object]
    status: Object
    active: list[Object]
    terminating: int
    waits: list[float] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    ended: Object | None = None


class Jobs:
    """Brings single Jobs in order. For one thread."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._pods = OwnedPods(objects, _COMPONENT)
        self._failures: dict[str, _Failures] = {}
        self._refusals: dict[str, int] = {}

    def sync(self, job: Object, pods: Sequence[Object]) -> float | None:
        """Make or delete the Job's pods, count those that ended, and end it when that is due.

        ``pods`` are its own. Answers in how many seconds there is something to do without a change.
        """
        if job["spec"].get("managedBy"):
            return None
        if _is_finished(job):
            self._failures.pop(uid_of(job), None)
            return self._removed(job)
        turn = self._begun(job, list(pods))
        status = turn.status
        fresh = [pod for pod in turn.pods if _is_new(pod, status)]
        succeeded = status.get("succeeded", 0) + len(status["uncountedTerminatedPods"].get("succeeded", ()))
        succeeded += sum(map(_has_succeeded, fresh))
        if _is_indexed(job):
            turn.done |= indexes_in(status.get("completedIndexes", ""))
            turn.done |= {index for pod in fresh if _has_succeeded(pod) for index in _indexes(job, pod)}
            succeeded = len(turn.done)
        failed = status.get("failed", 0) + len(status["uncountedTerminatedPods"].get("failed", ()))
        failed += sum(_has_failed(pod) for pod in fresh)
        failures = self._failed_since(uid_of(job), fresh)
        turn.ended = how_it_ends({**job, "status": status}, turn.pods, failed)
        if turn.ended is not None:
            for pod in turn.active:
                self._pods.delete(job, pod)
            turn.terminating += len(turn.active)
            turn.active = []
        elif not is_deleted(job):
            self._manage(turn, succeeded, failures)
            if _succeeds(job, succeeded, len(turn.active)):
                text = "Reached expected number of succeeded pods"
                turn.ended = condition(SUCCESS, "True", "CompletionsReached", text)
            else:
                self._suspended_or_resumed(turn)
        self._track(turn, failures)
        left = _seconds_to_deadline({**job, "status": turn.status})
        return min([*turn.waits, *([left] if left is not None else [])], default=None)

    def let_go(self, pods: Iterable[Object]) -> None:
        """Take the finalizer off pods whose Job is gone: nobody counts them any more."""
        for pod in pods:
            self._without_finalizer(pod)

    def _begun(self, job: Object, pods: list[Object]) -> _Turn:
        status = copy.deepcopy(job.get("status") or {})
        if "startTime" not in status and not job["spec"].get("suspend"):
            status["startTime"] = now()
        status.setdefault("uncountedTerminatedPods", {})
        active = [pod for pod in pods if is_active(pod)]
        return _Turn(job, pods, status, active, sum(map(is_terminating, pods)))

    def _removed(self, job: Object) -> float | None:
        """Delete a finished Job when its time is over."""
        left = _seconds_to_removal(job)
        if left == 0 and not is_deleted(job):
            self._objects.delete(JOBS, job, propagation="Foreground")
        return left or None

    def _failed_since(self, uid: str, fresh: Sequence[Object]) -> _Failures:
        """The failures since the last success, with those of pods that are about to be counted."""
        known = self._failures.get(uid, _Failures())
        succeeded = [ended_at(pod) for pod in fresh if _has_succeeded(pod)]
        failed = sorted(ended_at(pod) for pod in fresh if _has_failed(pod))
        if succeeded:
            after = [moment for moment in failed if moment > max(succeeded)]
            return _Failures(len(after), after[-1] if after else None)
        return _Failures(known.count + len(failed), failed[-1]) if failed else known

    def _manage(self, turn: _Turn, succeeded: int, failures: _Failures) -> None:
        """Make the pods that are missing, or delete those that are too many."""
        job, count = turn.job, len(turn.active)
        wanted = 0 if job["spec"].get("suspend") else wanted_active(job, succeeded, count)
        surplus = first_to_go(turn.active)[: max(0, count - wanted)]
        for pod in surplus:
            self._without_finalizer(pod)
            self._pods.delete(job, pod)
        if surplus:
            turn.terminating += len(surplus)
            gone = {uid_of(pod) for pod in surplus}
            turn.active = [pod for pod in turn.active if uid_of(pod) not in gone]
            turn.pods = [pod for pod in turn.pods if uid_of(pod) not in gone]
            return
        missing = wanted - count
        if job["spec"].get("podReplacementPolicy") == "Failed":
            missing -= turn.terminating
        if missing <= 0:
            return
        if failures.last is not None:
            rest = back_off_seconds(failures.count) - _age(failures.last)
            if rest > 0:
                turn.waits.append(rest)
                return
        self._make(turn, missing)

    def _make(self, turn: _Turn, missing: int) -> None:
        job, uid = turn.job, uid_of(turn.job)
        indexes: Sequence[int | None] = [None] * missing
        if _is_indexed(job):
            indexes = pending_indexes(job, turn.done, turn.pods)[:missing]
        for index in indexes[:_MOST_AT_ONCE]:
            pod = _pod(job, index)
            try:
                self._pods.create(job, pod)
            except Refused:
                self._refusals[uid] = self._refusals.get(uid, 0) + 1
                turn.waits.append(refused_seconds(self._refusals[uid], AGAIN_SECONDS))
                return
            turn.active.append(pod)
        self._refusals.pop(uid, None)

    def _suspended_or_resumed(self, turn: _Turn) -> None:
        """Say in the status that the Job is suspended or resumed; its time starts again then."""
        is_suspended = bool(turn.job["spec"].get("suspend"))
        value, reason = ("True", "JobSuspended") if is_suspended else ("False", "JobResumed")
        text = "Job suspended" if is_suspended else "Job resumed"
        status = with_condition(turn.status, condition(SUSPENDED, value, reason, text))
        if status == turn.status:
            return
        status.pop("startTime", None)
        turn.status = status if is_suspended else {**status, "startTime": now()}
        self._objects.post_event("Job", turn.job, "Normal", reason.removeprefix("Job"), text, _COMPONENT)

    def _track(self, turn: _Turn, failures: _Failures) -> None:
        """Count the pods that ended, let them go, and end the Job when none is left.

        Their UIDs are in the status before their finalizers go, and are counted only after that.
        """
        ended = turn.ended
        turn.status |= {
            "ready": sum(ready_since(pod) is not None for pod in turn.active if "status" in pod),
            "terminating": turn.terminating,
        }
        _set_count(turn.status, "active", len(turn.active))
        held = {uid_of(pod) for pod in turn.pods if is_tracked(pod)}
        _count(turn.status, held)
        letting = [
            pod
            for pod in turn.pods
            if is_tracked(pod)
            and (ended is not None or is_deleted(turn.job) or _has_succeeded(pod) or _has_failed(pod))
        ]
        for pod in letting:
            _note(turn, pod)
        if ended is not None:
            turn.status = with_condition(turn.status, ended)
        self._write(turn)
        self._failures[uid_of(turn.job)] = failures
        for pod in letting:
            self._without_finalizer(pod)
            held.discard(uid_of(pod))
        _count(turn.status, held)
        last = self._last(turn) if ended is not None and not turn.terminating else None
        self._write(turn)
        if last is not None:
            self._tell_end(turn.job, last)

    def _last(self, turn: _Turn) -> Object | None:
        """Note the end of a Job in its status; None where pods are still to be counted."""
        assert turn.ended is not None
        if any(turn.status["uncountedTerminatedPods"].values()) or turn.active:
            return None
        last = _last_condition(turn.ended)
        turn.status = with_condition(turn.status, last)
        if last["type"] == COMPLETE:
            turn.status["completionTime"] = last["lastTransitionTime"]
        return last

    def _tell_end(self, job: Object, last: Object) -> None:
        if last["type"] == COMPLETE:
            self._objects.post_event("Job", job, "Normal", "Completed", "Job completed", _COMPONENT)
        else:
            self._objects.post_event("Job", job, "Warning", last["reason"], last["message"], _COMPONENT)

    def _write(self, turn: _Turn) -> None:
        if turn.status != turn.job.get("status"):
            status = copy.deepcopy(turn.status)
            turn.job = self._objects.replace_status(JOBS, turn.job, status)

    def _without_finalizer(self, pod: Object) -> None:
        """Take the finalizer off a pod, however it changed since it was read; one that is gone has none."""
        metadata = pod["metadata"]
        stored = self._objects.find(PODS, metadata["namespace"], metadata["name"])
        if stored is None or uid_of(stored) != uid_of(pod) or not is_tracked(stored):
            return
        kept = [one for one in stored["metadata"]["finalizers"] if one != FINALIZER]
        self._objects.replace(PODS, {**stored, "metadata": {**stored["metadata"], "finalizers": kept}})


def is_tracked(pod: Object) -> bool:
    """Whether a pod waits to be counted by its Job."""
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def _is_new(pod: Object, status: Object) -> bool:
    """Whether a pod was not counted, nor noted to be, before."""
    noted = status["uncountedTerminatedPods"]
    return is_tracked(pod) and not any(uid_of(pod) in uids for uids in noted.values())


def _note(turn: _Turn, pod: Object) -> None:
    """Note a pod that ended in the status; all of a Job that failed have."""
    noted, uid = turn.status["uncountedTerminatedPods"], uid_of(pod)
    if any(uid in uids for uids in noted.values()):
        return
    failing = turn.ended is not None and turn.ended["type"] == FAILURE
    if _has_succeeded(pod):
        if _is_indexed(turn.job):
            turn.status["completedIndexes"] = indexes_text(turn.done)
            turn.status["succeeded"] = len(turn.done)
        else:
            noted["succeeded"] = [*noted.get("succeeded", ()), uid]
    elif _has_failed(pod) or failing:
        noted["failed"] = [*noted.get("failed", ()), uid]


def _count(status: Object, held: set[str]) -> None:
    """Count the noted pods that are let go."""
    noted = status["uncountedTerminatedPods"]
    for kind in ("succeeded", "failed"):
        left = [uid for uid in noted.get(kind, ()) if uid in held]
        _set_count(status, kind, status.get(kind, 0) + len(noted.get(kind, ())) - len(left))
        noted.pop(kind, None)
        if left:
            noted[kind] = left


def _set_count(status: Object, name: str, count: int) -> None:
    """A number of a status, which has none where it is zero."""
    status.pop(name, None)
    if count:
        status[name] = count


def _indexes(job: Object, pod: Object) -> list[int]:
    index = _index_of(pod)
    return [index] if index is not None and index < job["spec"]["completions"] else []


def _pod(job: Object, index: int | None) -> Object:
    """A new pod of a Job, with its number where the Job is indexed."""
    pod = copy.deepcopy(pod_of(job, job["spec"]["template"]))
    metadata, spec = pod["metadata"], pod["spec"]
    metadata["finalizers"] = list(dict.fromkeys([*metadata.get("finalizers", ()), FINALIZER]))
    if index is None:
        return pod
    for kind in ("labels", "annotations"):
        metadata[kind] = {**metadata.get(kind, {}), INDEX: str(index)}
    metadata["generateName"] = f"{job['metadata']['name']}-{index}-"
    spec["hostname"] = f"{job['metadata']['name']}-{index}"
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        env = container.get("env") or []
        if all(one["name"] != _INDEX_VARIABLE for one in env):
            container["env"] = [*env, {"name": _INDEX_VARIABLE, "valueFrom": source}]
    return pod


def _age(moment: datetime) -> float:
    return (datetime.now(UTC) - moment).total_seconds()


def _is_finished(job: Json) -> bool:
    """Whether a Job is complete or has failed."""
    return any(holds(job.get("status") or {}, kind) for kind in (COMPLETE, FAILED))


def _is_indexed(job: Json) -> bool:
    """Whether the pods of a Job are numbered."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def holds(status: Json, kind: str) -> bool:
    """Whether a condition is there and true."""
    return any(one["type"] == kind and one["status"] == "True" for one in status.get("conditions") or ())


def condition(kind: str, value: str, reason: str, message: str) -> Object:
    """A condition of a Job."""
    condition = {"type": kind, "status": value, "reason": reason, "message": message}
    return {**condition, "lastProbeTime": now(), "lastTransitionTime": now()}


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


def _last_condition(ended: Json) -> Object:
    """The condition of a Job whose pods are gone, for the one that says how it will end."""
    return condition(_LAST_OF[ended["type"]], "True", ended["reason"], ended["message"])


def _has_failed(pod: Json) -> bool:
    """Whether a pod of a Job counts as failed, one that somebody deleted among them."""
    phase = (pod.get("status") or {}).get("phase")
    return bool(phase == "Failed" or (is_deleted(pod) and phase != "Succeeded"))


def _has_succeeded(pod: Json) -> bool:
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
    left = _seconds_to_deadline(job)
    if left is not None and left <= 0:
        text = "Job was active longer than specified deadline"
        return condition(FAILURE, "True", "DeadlineExceeded", text)
    return None


def _succeeds(job: Json, succeeded: int, active: int) -> bool:
    """Whether enough pods have succeeded, and none runs."""
    wanted = job["spec"].get("completions")
    return active == 0 and (succeeded > 0 if wanted is None else succeeded >= wanted)


def wanted_active(job: Json, succeeded: int, active: int) -> int:
    """How many pods of a Job are to run now."""
    wanted, parallelism = job["spec"].get("completions"), int(job["spec"]["parallelism"])
    if wanted is None:
        return active if succeeded else parallelism
    return max(0, min(int(wanted) - succeeded, parallelism))


def _seconds_to_deadline(job: Json) -> float | None:
    """How long a Job may still be active; None without a limit."""
    limit, started = job["spec"].get("activeDeadlineSeconds"), (job.get("status") or {}).get("startTime")
    if limit is None or started is None or job["spec"].get("suspend"):
        return None
    return float(limit) - _since(started)


def _seconds_to_removal(job: Json) -> float | None:
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


def _index_of(pod: Json) -> int | None:
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
    taken = {_index_of(pod) for pod in pods if is_active(pod)} | set(done)
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
