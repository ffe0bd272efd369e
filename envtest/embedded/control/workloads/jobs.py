"""Makes the pods of Jobs, counts each of them once, and ends the Jobs. Go: pkg/controller/job.

Which pods have ended is remembered here, where Kubernetes keeps pods by a finalizer until they are counted.
Left out are the policies for failures, success, replacement and scheduling, back-offs for each index, limits
of time, and counting restarts of containers in their pods.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envtest.embedded.api.defaults import now
from envtest.embedded.api.statuses import Refused
from envtest.embedded.control import kinds
from envtest.embedded.control.objects import Objects, is_deleted, uid_of
from envtest.embedded.control.workloads import owned_pods

Object = dict[str, Any]
Json = Mapping[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"
"""The label and the annotation of an indexed Job's pod that say which one it is."""

_COMPONENT = "job-controller"
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_LAST_OF = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}
# DefaultJobPodFailureBackOff and MaxJobPodFailureBackOff of the Job controller.
_FIRST_BACK_OFF_SECONDS, _LAST_BACK_OFF_SECONDS = 10.0, 600.0


@dataclass(slots=True)
class EndedPods:
    """The pods of a Job that ended, by their UIDs: when that was seen, and the index where there is one.

    ``given_back`` were deleted here, since they were too many: they do not count.
    """

    succeeded: dict[str, tuple[float, int | None]] = field(default_factory=dict)
    failed: dict[str, float] = field(default_factory=dict)
    given_back: set[str] = field(default_factory=set)

    def add(self, pods: Iterable[Object]) -> None:
        """Note the pods that ended. One that is deleted before it succeeds has failed."""
        for pod in pods:
            uid, phase = uid_of(pod), (pod.get("status") or {}).get("phase")
            if uid in self.given_back or uid in self.failed or uid in self.succeeded:
                continue
            if phase == "Succeeded":
                self.succeeded[uid] = time.monotonic(), _index_of(pod)
            elif phase == "Failed" or is_deleted(pod):
                self.failed[uid] = time.monotonic()

    @property
    def indexes(self) -> set[int]:
        """The completed indexes."""
        return {index for _, index in self.succeeded.values() if index is not None}

    @property
    def count(self) -> int:
        """How many succeeded, of an indexed Job how many indexes."""
        return len(self.indexes or self.succeeded)

    def back_off_seconds(self) -> float:
        """How long the next pod has to wait because of failures since the last success."""
        success = max((moment for moment, _ in self.succeeded.values()), default=0.0)
        later = [moment for moment in self.failed.values() if moment > success]
        return back_off_seconds(len(later)) - (time.monotonic() - max(later)) if later else 0.0


class Jobs:
    """Reconciles single Jobs. For one thread."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._pods = owned_pods.OwnedPods(objects, _COMPONENT)
        self._ended: dict[str, EndedPods] = {}

    def sync(self, job: Object, pods: Sequence[Object]) -> float | None:
        """Make or delete the Job's pods, count those that ended, and end it when that is due.

        ``pods`` are its own. Returns in how many seconds there is something to do without a change.
        """
        if _is_finished(job):
            self._ended.pop(uid_of(job), None)
            return None
        ended = self._ended.setdefault(uid_of(job), EndedPods())
        ended.add(pods)
        before = job.get("status") or {}
        status = copy.deepcopy(before) if before.get("startTime") else {**before, "startTime": now()}
        active = [pod for pod in pods if owned_pods.is_active(pod)]
        wait = None
        if not is_deleted(job):
            status, wait = self._step({**job, "status": status}, pods, active, ended)
        status |= {
            "active": len(active),
            "ready": sum(map(owned_pods.is_ready, active)),
            "terminating": sum(map(owned_pods.is_terminating, pods)),
            "succeeded": ended.count,
            "failed": len(ended.failed),
            "completedIndexes": ",".join(map(str, sorted(ended.indexes))),
            "uncountedTerminatedPods": {},
        }
        # Go leaves these out when they are zero (omitempty).
        for name in ("active", "succeeded", "failed", "completedIndexes"):
            if not status[name]:
                del status[name]
        if status != before:
            self._objects.replace_status(kinds.JOBS, job, status)
        self._tell(job, before, status)
        return wait

    def _step(
        self, job: Object, pods: Sequence[Object], active: list[Object], ended: EndedPods
    ) -> tuple[Object, float | None]:
        """Make or delete pods, and change ``active`` alike; returns the status, and a wait."""
        status: Object = job["status"]
        announced = how_it_ends(job, ended, len(active))
        if announced is None:
            wait = self._manage(job, active, ended)
            is_suspended = bool(job["spec"].get("suspend"))
            status = with_condition(status, *_SUSPENDED[is_suspended])
            if is_suspended:
                status.pop("startTime", None)
            return status, wait
        status = with_condition(status, *announced)
        for pod in active:
            ended.failed[uid_of(pod)] = time.monotonic()
            self._pods.delete(job, pod)
        active.clear()
        # Announced first; the end follows once all pods have ended and are counted.
        if not any(owned_pods.is_active(pod) or owned_pods.is_terminating(pod) for pod in pods):
            kind, *why = announced
            status = with_condition(status, _LAST_OF[kind], *why)
            if kind == "SuccessCriteriaMet":
                status["completionTime"] = now()
        return status, None

    def _manage(self, job: Object, active: list[Object], ended: EndedPods) -> float | None:
        """Make the pods that are missing, or delete those that are too many; returns a wait."""
        wanted = 0 if job["spec"].get("suspend") else wanted_active(job, ended, len(active))
        for pod in owned_pods.deletion_order(active)[: max(0, len(active) - wanted)]:
            ended.given_back.add(uid_of(pod))
            self._pods.delete(job, pod)
            active.remove(pod)
        missing = wanted - len(active)
        rest = ended.back_off_seconds()
        if missing <= 0 or rest > 0:
            return rest if missing > 0 else None
        taken = {_index_of(pod) for pod in active} | ended.indexes
        free = (index for index in range(job["spec"].get("completions") or 0) if index not in taken)
        for _ in range(missing):
            pod = _pod(job, next(free, None) if _is_indexed(job) else None)
            try:
                self._pods.create(job, pod)
            except Refused:
                return owned_pods.REFUSED_SECONDS
            active.append(pod)
        return None

    def _tell(self, job: Object, before: Json, status: Json) -> None:
        """Post events about the conditions that are new."""
        known = {(one["type"], one["status"]) for one in before.get("conditions") or ()}
        for one in status.get("conditions") or ():
            if (one["type"], one["status"]) in known or one["type"] in _LAST_OF:
                continue
            kind = "Warning" if one["type"] == "Failed" else "Normal"
            reason = {"Complete": "Completed", "Suspended": one["reason"].removeprefix("Job")}.get(
                one["type"]
            )
            text = "Job completed" if one["type"] == "Complete" else one["message"]
            self._objects.post_event(job, kind, reason or one["reason"], text, _COMPONENT)


_SUSPENDED = {
    True: ("Suspended", "JobSuspended", "Job suspended"),
    False: ("Suspended", "JobResumed", "Job resumed"),
}


def _pod(job: Object, index: int | None) -> Object:
    """A new pod of a Job, with its number where the Job is indexed."""
    pod = copy.deepcopy(owned_pods.pod_of(job, job["spec"]["template"]))
    metadata, spec = pod["metadata"], pod["spec"]
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


def _is_finished(job: Json) -> bool:
    """Whether a Job is complete or has failed."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions)


def _is_indexed(job: Json) -> bool:
    """Whether the pods of a Job are numbered."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def with_condition(status: Json, kind: str, reason: str, message: str) -> Object:
    """The status with a condition. Only that of a resumed Job is false, and only once it was suspended."""
    value = "False" if reason == "JobResumed" else "True"
    known = next((one for one in status.get("conditions") or () if one["type"] == kind), None)
    if (known is None and value == "False") or (known is not None and known["reason"] == reason):
        return dict(status)
    condition = {"type": kind, "status": value, "reason": reason, "message": message}
    others = [one for one in status.get("conditions") or () if one["type"] != kind]
    moments = {"lastProbeTime": now(), "lastTransitionTime": now()}
    return {**status, "conditions": [*others, {**condition, **moments}]}


def how_it_ends(job: Json, ended: EndedPods, active: int) -> tuple[str, str, str] | None:
    """Type, reason and message of the condition that announces the end; None while the Job goes on."""
    spec, status = job["spec"], job.get("status") or {}
    for one in status.get("conditions") or ():
        if one["type"] in _LAST_OF:
            return one["type"], one["reason"], one["message"]
    if len(ended.failed) > spec["backoffLimit"]:
        return "FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    wanted = spec.get("completions") or 1
    if not active and ended.count >= wanted:
        return "SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods"
    return None


def wanted_active(job: Json, ended: EndedPods, active: int) -> int:
    """How many pods of a Job are to run now."""
    wanted, parallelism = job["spec"].get("completions"), int(job["spec"]["parallelism"])
    if wanted is None:
        # The others of a work queue may end, and no more are made.
        return active if ended.succeeded else parallelism
    return max(0, min(int(wanted) - ended.count, parallelism))


def back_off_seconds(failures: int) -> float:
    """How long after a failure the next pod is made; ``failures`` counts those since the last success."""
    if not failures:
        return 0.0
    return min(_FIRST_BACK_OFF_SECONDS * 2.0 ** min(failures - 1, 30), _LAST_BACK_OFF_SECONDS)


def _index_of(pod: Json) -> int | None:
    """The number of an indexed Job's pod."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdecimal() else None
