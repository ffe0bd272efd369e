"""Makes the pods of Jobs, counts each of them once, and ends the Jobs. Go: pkg/controller/job.

A pod of a Job has a finalizer until it is counted, so that a pod which somebody deletes is counted as well.
Left out are the policies for failures, success and scheduling, back-offs for each index, and Jobs of other
controllers.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from envtest.embedded.api.defaults import now
from envtest.embedded.api.statuses import Refused
from envtest.embedded.control import change_loop, kinds
from envtest.embedded.control.objects import Objects, is_deleted, uid_of
from envtest.embedded.control.workloads import owned_pods

Object = dict[str, Any]

_COMPONENT = "job-controller"
FINALIZER = "batch.kubernetes.io/job-tracking"
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
# MaxPodCreateDeletePerSync of the Job controller.
_MOST_AT_ONCE = 500

Json = Mapping[str, Any]

COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
SUCCESS, FAILURE = "SuccessCriteriaMet", "FailureTarget"
INDEX = "batch.kubernetes.io/job-completion-index"
"""The label and the annotation of an indexed Job's pod that say which one it is."""

_LAST_OF = {SUCCESS: COMPLETE, FAILURE: FAILED}
# DefaultJobPodFailureBackOff and MaxJobPodFailureBackOff of the Job controller.
_FIRST_BACK_OFF_SECONDS, _LAST_BACK_OFF_SECONDS = 10.0, 600.0


@dataclass(frozen=True, slots=True)
class _Failures:
    """How many pods of a Job failed since the last that succeeded, and when the last did."""

    count: int = 0
    last: datetime | None = None


@dataclass(slots=True)
class _JobState:
    """A Job during one sync: its pods, its new status, and what is decided on the way.

    ``waits`` are seconds until something is due, ``done`` the completed indexes, ``ended`` is the condition
    by which the Job ends.
    """

    job: Object
    pods: list[Object]
    status: Object
    active: list[Object]
    terminating: int
    waits: list[float] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    ended: Object | None = None


class Jobs:
    """Reconciles single Jobs. For one thread."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._pods = owned_pods.OwnedPods(objects, _COMPONENT)
        self._failures: dict[str, _Failures] = {}
        self._refusals: dict[str, int] = {}

    def sync(self, job: Object, pods: Sequence[Object]) -> float | None:
        """Make or delete the Job's pods, count those that ended, and end it when that is due.

        ``pods`` are its own. Returns in how many seconds there is something to do without a change.
        """
        # Another controller, such as that of MultiKueue, looks after it.
        if job["spec"].get("managedBy"):
            return None
        if _is_finished(job):
            self._failures.pop(uid_of(job), None)
            return self._removed(job)
        state = self._begun(job, list(pods))
        status = state.status
        fresh = [pod for pod in state.pods if _is_new(pod, status)]
        succeeded = status.get("succeeded", 0) + len(status["uncountedTerminatedPods"].get("succeeded", ()))
        succeeded += sum(map(_has_succeeded, fresh))
        if _is_indexed(job):
            state.done |= indexes_in(status.get("completedIndexes", ""))
            state.done |= {index for pod in fresh if _has_succeeded(pod) for index in _indexes(job, pod)}
            succeeded = len(state.done)
        failed = status.get("failed", 0) + len(status["uncountedTerminatedPods"].get("failed", ()))
        failed += sum(_has_failed(pod) for pod in fresh)
        # Only for the back-off; backoffLimit counts all failures.
        failures = self._failed_since(uid_of(job), fresh)
        state.ended = how_it_ends({**job, "status": status}, state.pods, failed)
        if state.ended is not None:
            for pod in state.active:
                self._pods.delete(job, pod)
            state.terminating += len(state.active)
            state.active = []
        elif not is_deleted(job):
            self._manage(state, succeeded, failures)
            if _succeeds(job, succeeded, len(state.active)):
                # Announced first; Complete follows once all pods have ended and are counted.
                text = "Reached expected number of succeeded pods"
                state.ended = condition(SUCCESS, "True", "CompletionsReached", text)
            else:
                self._suspended_or_resumed(state)
        self._track(state, failures)
        left = _seconds_to_deadline({**job, "status": state.status})
        return min([*state.waits, *([left] if left is not None else [])], default=None)

    def drop_finalizers(self, pods: Iterable[Object]) -> None:
        """Remove the finalizer of pods whose Job is gone: nobody counts them any more."""
        for pod in pods:
            self._without_finalizer(pod)

    def _begun(self, job: Object, pods: list[Object]) -> _JobState:
        status = copy.deepcopy(job.get("status") or {})
        if "startTime" not in status and not job["spec"].get("suspend"):
            status["startTime"] = now()
        status.setdefault("uncountedTerminatedPods", {})
        active = [pod for pod in pods if owned_pods.is_active(pod)]
        return _JobState(job, pods, status, active, sum(map(owned_pods.is_terminating, pods)))

    def _removed(self, job: Object) -> float | None:
        """Delete a finished Job when its time is over."""
        left = _seconds_to_removal(job)
        if left == 0 and not is_deleted(job):
            self._objects.delete(kinds.JOBS, job, propagation="Foreground")
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

    def _manage(self, state: _JobState, succeeded: int, failures: _Failures) -> None:
        """Make the pods that are missing, or delete those that are too many."""
        job, count = state.job, len(state.active)
        wanted = 0 if job["spec"].get("suspend") else wanted_active(job, succeeded, count)
        # After a suspension or a lower parallelism.
        surplus = owned_pods.deletion_order(state.active)[: max(0, count - wanted)]
        for pod in surplus:
            self._without_finalizer(pod)
            self._pods.delete(job, pod)
        if surplus:
            state.terminating += len(surplus)
            gone = {uid_of(pod) for pod in surplus}
            state.active = [pod for pod in state.active if uid_of(pod) not in gone]
            state.pods = [pod for pod in state.pods if uid_of(pod) not in gone]
            return
        missing = wanted - count
        # Then a pod that is ending is replaced only when it has ended.
        if job["spec"].get("podReplacementPolicy") == "Failed":
            missing -= state.terminating
        if missing <= 0:
            return
        if failures.last is not None:
            rest = back_off_seconds(failures.count) - _age(failures.last)
            if rest > 0:
                state.waits.append(rest)
                return
        self._make(state, missing)

    def _make(self, state: _JobState, missing: int) -> None:
        job, uid = state.job, uid_of(state.job)
        indexes: Sequence[int | None] = [None] * missing
        if _is_indexed(job):
            indexes = pending_indexes(job, state.done, state.pods)[:missing]
        for index in indexes[:_MOST_AT_ONCE]:
            pod = _pod(job, index)
            try:
                self._pods.create(job, pod)
            except Refused:
                self._refusals[uid] = self._refusals.get(uid, 0) + 1
                state.waits.append(
                    change_loop.back_off_seconds(self._refusals[uid], change_loop.AGAIN_SECONDS)
                )
                return
            state.active.append(pod)
        self._refusals.pop(uid, None)

    def _suspended_or_resumed(self, state: _JobState) -> None:
        """Write into the status that the Job is suspended or resumed; a resumed Job starts its time again."""
        is_suspended = bool(state.job["spec"].get("suspend"))
        value, reason = ("True", "JobSuspended") if is_suspended else ("False", "JobResumed")
        text = "Job suspended" if is_suspended else "Job resumed"
        status = with_condition(state.status, condition(SUSPENDED, value, reason, text))
        if status == state.status:
            return
        status.pop("startTime", None)
        state.status = status if is_suspended else {**status, "startTime": now()}
        self._objects.post_event(state.job, "Normal", reason.removeprefix("Job"), text, _COMPONENT)

    def _track(self, state: _JobState, failures: _Failures) -> None:
        """Count the pods that ended, remove their finalizers, and end the Job when no pod is left.

        First their UIDs are written into the status, then the finalizers are removed, and only then are the
        pods counted. A crash at any point neither loses a pod nor counts it twice.
        """
        ended = state.ended
        state.status |= {
            "ready": sum(owned_pods.ready_since(pod) is not None for pod in state.active if "status" in pod),
            "terminating": state.terminating,
        }
        # Go leaves these counts out when they are zero (omitempty).
        _set_count(state.status, "active", len(state.active))
        held = {uid_of(pod) for pod in state.pods if is_tracked(pod)}
        _count(state.status, held)
        to_release = [
            pod
            for pod in state.pods
            if is_tracked(pod)
            and (ended is not None or is_deleted(state.job) or _has_succeeded(pod) or _has_failed(pod))
        ]
        for pod in to_release:
            _note(state, pod)
        if ended is not None:
            state.status = with_condition(state.status, ended)
        self._write(state)
        self._failures[uid_of(state.job)] = failures
        for pod in to_release:
            self._without_finalizer(pod)
            held.discard(uid_of(pod))
        _count(state.status, held)
        last = self._last(state) if ended is not None and not state.terminating else None
        self._write(state)
        if last is not None:
            self._post_end(state.job, last)

    def _last(self, state: _JobState) -> Object | None:
        """Write the end of the Job into its status and return it; None while pods are to be counted."""
        assert state.ended is not None
        if any(state.status["uncountedTerminatedPods"].values()) or state.active:
            return None
        last = _last_condition(state.ended)
        state.status = with_condition(state.status, last)
        if last["type"] == COMPLETE:
            state.status["completionTime"] = last["lastTransitionTime"]
        return last

    def _post_end(self, job: Object, last: Object) -> None:
        if last["type"] == COMPLETE:
            self._objects.post_event(job, "Normal", "Completed", "Job completed", _COMPONENT)
        else:
            self._objects.post_event(job, "Warning", last["reason"], last["message"], _COMPONENT)

    def _write(self, state: _JobState) -> None:
        if state.status != state.job.get("status"):
            status = copy.deepcopy(state.status)
            state.job = self._objects.replace_status(kinds.JOBS, state.job, status)

    def _without_finalizer(self, pod: Object) -> None:
        """Remove the finalizer of a pod, whether or not the pod has changed since it was read."""
        metadata = pod["metadata"]
        stored = self._objects.find(kinds.PODS, metadata["namespace"], metadata["name"])
        if stored is None or uid_of(stored) != uid_of(pod) or not is_tracked(stored):
            return
        kept = [one for one in stored["metadata"]["finalizers"] if one != FINALIZER]
        self._objects.replace(kinds.PODS, {**stored, "metadata": {**stored["metadata"], "finalizers": kept}})


def is_tracked(pod: Object) -> bool:
    """Whether a pod waits to be counted by its Job."""
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def _is_new(pod: Object, status: Object) -> bool:
    """Whether a pod is neither counted nor among the uncounted UIDs of the status."""
    noted = status["uncountedTerminatedPods"]
    return is_tracked(pod) and not any(uid_of(pod) in uids for uids in noted.values())


def _note(state: _JobState, pod: Object) -> None:
    """Add a pod that ended to the uncounted UIDs of the status; in a Job that fails, any pod."""
    noted, uid = state.status["uncountedTerminatedPods"], uid_of(pod)
    if any(uid in uids for uids in noted.values()):
        return
    failing = state.ended is not None and state.ended["type"] == FAILURE
    if _has_succeeded(pod):
        if _is_indexed(state.job):
            state.status["completedIndexes"] = indexes_text(state.done)
            state.status["succeeded"] = len(state.done)
        else:
            noted["succeeded"] = [*noted.get("succeeded", ()), uid]
    elif _has_failed(pod) or failing:
        noted["failed"] = [*noted.get("failed", ()), uid]


def _count(status: Object, held: set[str]) -> None:
    """Count the noted pods whose finalizers are gone; ``held`` are the UIDs of those that still have one."""
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
    pod = copy.deepcopy(owned_pods.pod_of(job, job["spec"]["template"]))
    metadata, spec = pod["metadata"], pod["spec"]
    metadata["finalizers"] = list(dict.fromkeys([*metadata.get("finalizers", ()), FINALIZER]))
    if index is None:
        return pod
    # The label is what the variable below reads from the pod.
    for kind in ("labels", "annotations"):
        metadata[kind] = {**metadata.get(kind, {}), INDEX: str(index)}
    # An indexed pod has its number in its name and hostname.
    metadata["generateName"] = f"{job['metadata']['name']}-{index}-"
    spec["hostname"] = f"{job['metadata']['name']}-{index}"
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        env = container.get("env") or []
        # A variable that the template sets itself stays.
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
    """The status with a condition; a false one is added only where the status has one of that type."""
    known = next((one for one in status.get("conditions") or () if one["type"] == new["type"]), None)
    if known is None and new["status"] == "False":
        return dict(status)
    same = ("status", "reason", "message")
    if known is not None and [known.get(key) for key in same] == [new[key] for key in same]:
        return dict(status)
    others = [one for one in status.get("conditions") or () if one["type"] != new["type"]]
    return {**status, "conditions": [*others, new]}


def _last_condition(ended: Json) -> Object:
    """The condition of a Job whose pods have ended, from the one that announced the end."""
    return condition(_LAST_OF[ended["type"]], "True", ended["reason"], ended["message"])


def _has_failed(pod: Json) -> bool:
    """Whether a pod of a Job counts as failed; so does one that was deleted before it succeeded."""
    phase = (pod.get("status") or {}).get("phase")
    return bool(phase == "Failed" or (is_deleted(pod) and phase != "Succeeded"))


def _has_succeeded(pod: Json) -> bool:
    """Whether a pod has done its work."""
    return bool((pod.get("status") or {}).get("phase") == "Succeeded")


def how_it_ends(job: Json, pods: Sequence[Object], failed: int) -> Object | None:
    """The condition by which a Job ends; None while it goes on. Success is checked elsewhere."""
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
    return float(limit) - _age(datetime.fromisoformat(started))


def _seconds_to_removal(job: Json) -> float | None:
    """How long a finished Job is kept; None where it stays."""
    limit = job["spec"].get("ttlSecondsAfterFinished")
    ends = [one for one in job["status"]["conditions"] if one["type"] in (COMPLETE, FAILED)]
    ended = datetime.fromisoformat(ends[-1]["lastTransitionTime"])
    return None if limit is None else max(0.0, limit - _age(ended))


def back_off_seconds(failures: int) -> float:
    """How long after a failure the next pod is made; ``failures`` counts those since the last success."""
    if not failures:
        return 0.0
    return min(_FIRST_BACK_OFF_SECONDS * 2.0 ** min(failures - 1, 30), _LAST_BACK_OFF_SECONDS)


def ended_at(pod: Json) -> datetime:
    """When a pod ended: with its last container, else when it became unready, was deleted, or was created."""
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
    """The indexes that need a pod and have none."""
    taken = {_index_of(pod) for pod in pods if owned_pods.is_active(pod)} | set(done)
    return [index for index in range(job["spec"]["completions"]) if index not in taken]


def _restarted_too_often(job: Json, pods: Iterable[Json]) -> bool:
    """Whether containers were restarted in their pods more often than backoffLimit allows."""
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
    # With a limit of 0 the first restart is too many already.
    return count > 0 if limit == 0 else count >= limit
