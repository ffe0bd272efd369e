"""Rolls Deployments out over ReplicaSets, scales them, and writes their status.

Go: pkg/controller/deployment; the status is from sync.go and progress.go there. ReplicaSets note which
revision of the Deployment they are; ``kubectl rollout history`` reads that.

The deprecated rollback by an annotation is left out: kubectl writes the older template itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from envtest.embedded.api.defaults import now
from envtest.embedded.api.statuses import Refused
from envtest.embedded.control import kinds
from envtest.embedded.control.objects import CONFLICT, Objects, is_deleted, is_terminal, uid_of
from envtest.embedded.control.workloads import rollout
from envtest.embedded.control.workloads.owned_pods import controlled_by, controller_uid
from kubernetes_rules.defaults import NO_LIMIT

Object = dict[str, Any]

_COMPONENT = "deployment-controller"
_LONGEST_NAME = 253

_REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
# Annotations of a Deployment that its ReplicaSets do not get.
_NOT_COPIED = (
    "kubectl.kubernetes.io/last-applied-configuration",
    *(rollout.REVISION, _REVISION_HISTORY, rollout.DESIRED, rollout.MOST),
    "deprecated.deployment.rollback.to",
)
_LONGEST_HISTORY = 2000

Json = Mapping[str, Any]

PROGRESSING, AVAILABLE, FAILURE = "Progressing", "Available", "ReplicaFailure"
NEW_IS_AVAILABLE, TIMED_OUT = "NewReplicaSetAvailable", "ProgressDeadlineExceeded"
PAUSED, RESUMED = "DeploymentPaused", "DeploymentResumed"


class Deployments:
    """Reconciles single Deployments. For one thread."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def sync(self, deployment: Object, pods: Mapping[str, Sequence[Object]]) -> float | None:
        """Take one step of a rollout or of scaling, and write the status.

        ``pods`` are all pods by their controller. Returns in how many seconds the progress deadline is over.
        """
        new, old = rollout.split(deployment, self._sets(deployment))
        if is_deleted(deployment):
            return self._write_status(deployment, counted(deployment, new, old))
        deployment = self._paused_or_resumed(deployment)
        if new is not None:
            deployment, new = self._revised(deployment, new, old)
        if deployment["spec"].get("paused") or _is_scaled(deployment, [*old, *([new] if new else [])]):
            self._scale(deployment, new, old)
            if deployment["spec"].get("paused"):
                self._clean_up(deployment, old)
            new, old = rollout.split(deployment, self._sets(deployment))
            return self._write_status(deployment, counted(deployment, new, old))
        if rollout.is_rolling(deployment):
            deployment = self._roll(deployment, new, old)
        else:
            deployment = self._recreate(deployment, new, old, pods)
        new, old = rollout.split(deployment, self._sets(deployment))
        return self._write_status(deployment, _rolled_out(deployment, new, old))

    def _sets(self, deployment: Object) -> list[Object]:
        """The ReplicaSets of a Deployment as they are now."""
        stored = self._objects.list_in(kinds.REPLICA_SETS, deployment["metadata"]["namespace"])
        return [one for one in stored if controller_uid(one) == uid_of(deployment)]

    def _write_status(self, deployment: Object, status: Object) -> float | None:
        if status != deployment.get("status"):
            self._objects.replace_status(kinds.DEPLOYMENTS, deployment, status)
        return _seconds_to_deadline(deployment, status)

    def _paused_or_resumed(self, deployment: Object) -> Object:
        """Note a pause or its end in the condition. The progress deadline starts again after a pause."""
        status = deployment.get("status") or {}
        known = _condition_of(status, PROGRESSING) or {}
        was, is_paused = known.get("reason") == PAUSED, bool(deployment["spec"].get("paused"))
        if not _has_deadline(deployment) or was == is_paused or known.get("reason") == TIMED_OUT:
            return deployment
        reason, text = (PAUSED, "Deployment is paused") if is_paused else (RESUMED, "Deployment is resumed")
        status = with_condition(status, PROGRESSING, "Unknown", reason, text)
        return self._objects.replace_status(kinds.DEPLOYMENTS, deployment, status)

    def _revised(self, deployment: Object, new: Object, old: Sequence[Object]) -> tuple[Object, Object]:
        """The Deployment and its new ReplicaSet with the revision, which is the highest of all."""
        annotated = _with_annotations(deployment, new, max([0, *map(_revision_of, old)]) + 1)
        ready = deployment["spec"].get("minReadySeconds", 0)
        if annotated != new or ready != new["spec"].get("minReadySeconds", 0):
            # minReadySeconds is not part of the template: it is changed without a rollout.
            changed = {**annotated, "spec": {**annotated["spec"], "minReadySeconds": ready}}
            new = self._objects.replace(kinds.REPLICA_SETS, changed if ready else annotated)
        status = deployment.get("status") or {}
        if _has_deadline(deployment) and _condition_of(status, PROGRESSING) is None:
            text = f'Found new replica set "{new["metadata"]["name"]}"'
            status = with_condition(status, PROGRESSING, "True", "FoundNewReplicaSet", text)
        return self._with_revision(deployment, _revision_of(new), status), new

    def _with_revision(self, deployment: Object, revision: int, status: Object) -> Object:
        metadata = deployment["metadata"]
        annotations = {**(metadata.get("annotations") or {}), rollout.REVISION: str(revision)}
        if annotations == metadata.get("annotations") and status == (deployment.get("status") or {}):
            return deployment
        changed = {**deployment, "metadata": {**metadata, "annotations": annotations}}
        return self._objects.replace_status(kinds.DEPLOYMENTS, changed, status)

    def _roll(self, deployment: Object, new: Object | None, old: Sequence[Object]) -> Object:
        """One step of a rolling update: more new pods if there is room, else fewer old ones."""
        if new is None:
            deployment, new = self._made(deployment, old)
        # More new pods as far as maxSurge allows; only where there is no room are old ones taken away.
        wanted, sets = rollout.size(deployment), [*old, new]
        grown = wanted if rollout.size(new) > wanted else rollout.new_size(deployment, sets, new)
        if self._resize(deployment, new, grown) or self._shrink_old(deployment, new, rollout.active(old)):
            return deployment
        if is_complete(deployment, deployment.get("status") or {}):
            self._clean_up(deployment, old)
        return deployment

    def _shrink_old(self, deployment: Object, new: Object, old: Sequence[Object]) -> bool:
        """Take pods from old ReplicaSets, those that are not available first; whether any went."""
        most = rollout.most_to_shrink(deployment, old, new) if old else 0
        if most <= 0:
            return False
        # Pods that are not available go first: to lose them costs nothing.
        shrunk = rollout.unhealthy_shrunk(old, most)
        for one in old:
            self._resize(deployment, one, shrunk.get(one["metadata"]["name"], rollout.size(one)))
        left = rollout.active(self._sets(deployment))
        old = [one for one in left if uid_of(one) != uid_of(new)]
        further = rollout.old_shrunk(deployment, old, new)
        for one in old:
            self._resize(deployment, one, further.get(one["metadata"]["name"], rollout.size(one)))
        return bool(shrunk or further)

    def _recreate(
        self,
        deployment: Object,
        new: Object | None,
        old: Sequence[Object],
        pods: Mapping[str, Sequence[Object]],
    ) -> Object:
        """One step of a change in which all old pods end before the first new one begins."""
        shrunk = [one for one in old if self._resize(deployment, one, 0)]
        if shrunk:
            return deployment
        # The strategy Recreate waits until the last old pod has ended.
        running = [pod for one in old for pod in pods.get(uid_of(one), ()) if not is_terminal(pod)]
        if running or rollout.total(old, "replicas"):
            return deployment
        if new is None:
            deployment, new = self._made(deployment, old)
        self._resize(deployment, new, rollout.size(deployment))
        if is_complete(deployment, deployment.get("status") or {}):
            self._clean_up(deployment, old)
        return deployment

    def _scale(self, deployment: Object, new: Object | None, old: Sequence[Object]) -> None:
        """Scale as the Deployment was scaled: the only ReplicaSet with pods alone, several in proportion."""
        sets = [*old, *([new] if new is not None else [])]
        running = rollout.active(sets)
        if len(running) < 2:
            for one in (running or ([new] if new is not None else list(old)[-1:]))[:1]:
                self._resize(deployment, one, rollout.size(deployment))
        elif rollout.is_saturated(deployment, new):
            for one in rollout.active(old):
                self._resize(deployment, one, 0)
        elif rollout.is_rolling(deployment):
            scaled = rollout.proportional(deployment, running)
            for one in running:
                self._resize(deployment, one, scaled[one["metadata"]["name"]], always=True)

    def _resize(self, deployment: Object, one: Object, wanted: int, *, always: bool = False) -> bool:
        """Scale a ReplicaSet; returns whether its size changed. ``always`` renews its annotations, too."""
        before = rollout.size(one)
        if before == wanted and not always:
            return False
        metadata = one["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **_sizes_noted(deployment)}
        if before == wanted and annotations == metadata.get("annotations"):
            return False
        spec = {**one["spec"], "replicas": wanted}
        changed = {**one, "metadata": {**metadata, "annotations": annotations}, "spec": spec}
        self._objects.replace(kinds.REPLICA_SETS, changed)
        if before != wanted:
            way, name = "up" if before < wanted else "down", metadata["name"]
            text = f"Scaled {way} replica set {name} from {before} to {wanted}"
            self._objects.post_event(deployment, "Normal", "ScalingReplicaSet", text, _COMPONENT)
        return before != wanted

    def _made(self, deployment: Object, old: Sequence[Object]) -> tuple[Object, Object]:
        """The Deployment and the ReplicaSet that is made for its template. Raises Refused."""
        status = deployment.get("status") or {}
        revision = max([0, *map(_revision_of, old)]) + 1
        wanted = _new_set(deployment, status.get("collisionCount", 0))
        wanted["spec"]["replicas"] = rollout.new_size(deployment, [*old, wanted], wanted)
        wanted = _with_annotations(deployment, wanted, revision)
        wanted["metadata"]["annotations"] |= _sizes_noted(deployment)
        name = wanted["metadata"]["name"]
        try:
            made = self._objects.create(kinds.REPLICA_SETS, deployment["metadata"]["namespace"], wanted)
        except Refused as refused:
            self._note_refused(deployment, name, refused)
            raise
        if rollout.size(made):
            text = f"Scaled up replica set {name} from 0 to {rollout.size(made)}"
            self._objects.post_event(deployment, "Normal", "ScalingReplicaSet", text, _COMPONENT)
        if _has_deadline(deployment):
            text = f'Created new replica set "{name}"'
            status = with_condition(status, PROGRESSING, "True", "NewReplicaSetCreated", text)
        return self._with_revision(deployment, revision, status), made

    def _note_refused(self, deployment: Object, name: str, refused: Refused) -> None:
        """Note in the status why the ReplicaSet was not made. A taken name is a collision of hashes."""
        status = deployment.get("status") or {}
        if refused.code == CONFLICT:
            # The number becomes part of the hash, so the next attempt takes another name.
            status = {**status, "collisionCount": status.get("collisionCount", 0) + 1}
            self._objects.replace_status(kinds.DEPLOYMENTS, deployment, status)
            return
        text, reason = f'Failed to create new replica set "{name}": {refused}', "ReplicaSetCreateError"
        if _has_deadline(deployment):
            status = with_condition(status, PROGRESSING, "False", reason, text)
            self._objects.replace_status(kinds.DEPLOYMENTS, deployment, status)
        self._objects.post_event(deployment, "Warning", reason, text, _COMPONENT)

    def _clean_up(self, deployment: Object, old: Sequence[Object]) -> None:
        """Delete the oldest ReplicaSets without pods that are beyond revisionHistoryLimit."""
        limit = deployment["spec"].get("revisionHistoryLimit", NO_LIMIT)
        ordered = sorted(old, key=lambda one: (_revision_of(one), one["metadata"]["creationTimestamp"]))
        for one in ordered[: max(0, len(old) - limit)]:
            status = one.get("status") or {}
            # A status from before the last change of its size does not count.
            seen = status.get("observedGeneration", 0) >= one["metadata"]["generation"]
            if seen and not rollout.size(one) and not status.get("replicas"):
                self._objects.delete(kinds.REPLICA_SETS, one)


def _is_scaled(deployment: Object, sets: Sequence[Object]) -> bool:
    """Whether a ReplicaSet with pods was sized for another number of pods of the Deployment."""
    wanted = str(rollout.size(deployment))
    noted = [(one["metadata"].get("annotations") or {}).get(rollout.DESIRED) for one in rollout.active(sets)]
    return any(number not in (None, wanted) for number in noted)


def _sizes_noted(deployment: Object) -> dict[str, str]:
    wanted = rollout.size(deployment)
    return {rollout.DESIRED: str(wanted), rollout.MOST: str(wanted + rollout.most_surge(deployment))}


def _new_set(deployment: Object, collisions: int) -> Object:
    """A ReplicaSet without pods for the Deployment's template; a hash of the template is in its selector."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    template = spec["template"]
    digest = rollout.template_hash(template, collisions)
    # Tells the pods of this template from those of the others, which have the same labels otherwise.
    known_by = {rollout.HASH_LABEL: digest}
    labels = {**((template.get("metadata") or {}).get("labels") or {}), **known_by}
    selector = {
        **spec["selector"],
        "matchLabels": {**(spec["selector"].get("matchLabels") or {}), **known_by},
    }
    name = f"{metadata['name'][: _LONGEST_NAME - len(digest) - 1]}-{digest}"
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [controlled_by(deployment)]},
        "spec": {
            "replicas": 0,
            "minReadySeconds": spec.get("minReadySeconds", 0),
            "selector": selector,
            "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
        },
    }


def _revision_of(replica_set: Mapping[str, Any]) -> int:
    """The revision of a ReplicaSet, 0 without."""
    text = (replica_set["metadata"].get("annotations") or {}).get(rollout.REVISION, "0")
    return int(text) if text.isdecimal() else 0


def _with_annotations(deployment: Mapping[str, Any], replica_set: Object, revision: int) -> Object:
    """The ReplicaSet with the annotations of its Deployment, and this revision where it had a lower one.

    A revision that it had before goes into its history (SetNewReplicaSetAnnotations).
    """
    metadata = replica_set["metadata"]
    annotations = dict(metadata.get("annotations") or {})
    given = deployment["metadata"].get("annotations") or {}
    annotations |= {key: value for key, value in given.items() if key not in _NOT_COPIED}
    before = annotations.get(rollout.REVISION)
    if _revision_of(replica_set) < revision:
        annotations[rollout.REVISION] = str(revision)
        if before is not None:
            history = [one for one in annotations.get(_REVISION_HISTORY, "").split(",") if one]
            while len(",".join([*history, before])) > _LONGEST_HISTORY and history:
                del history[0]
            annotations[_REVISION_HISTORY] = ",".join([*history, before])
    if annotations == (metadata.get("annotations") or {}):
        return replica_set
    return {**replica_set, "metadata": {**metadata, "annotations": annotations}}


def _has_deadline(deployment: Json) -> bool:
    """Whether the Deployment has a progress deadline."""
    return deployment["spec"].get("progressDeadlineSeconds") not in (None, NO_LIMIT)


def _condition_of(status: Json, kind: str) -> Object | None:
    """The condition of a kind, None where there is none."""
    return next((one for one in status.get("conditions") or () if one["type"] == kind), None)


def with_condition(status: Json, kind: str, value: str, reason: str, message: str) -> Object:
    """The status with a condition; one of the same status and reason is left as it is."""
    known = _condition_of(status, kind)
    if known is not None and (known["status"], known["reason"]) == (value, reason):
        return dict(status)
    since = known["lastTransitionTime"] if known is not None and known["status"] == value else now()
    condition = {"type": kind, "status": value, "reason": reason, "message": message}
    new = {**condition, "lastUpdateTime": now(), "lastTransitionTime": since}
    return {**without(status, kind), "conditions": [*_others(status, kind), new]}


def without(status: Json, kind: str) -> Object:
    """The status without a condition."""
    others = _others(status, kind)
    found = {key: value for key, value in status.items() if key != "conditions"}
    return {**found, "conditions": others} if others else found


def counted(deployment: Json, new: Json | None, old: Sequence[Json]) -> Object:
    """The status, summed up over the ReplicaSets, without a verdict on the progress."""
    sets = [*old, *([new] if new is not None else [])]
    available = rollout.total(sets, "availableReplicas")
    before = deployment.get("status") or {}
    counts = {
        "replicas": rollout.total(sets, "replicas"),
        "updatedReplicas": rollout.total([new] if new is not None else [], "replicas"),
        "readyReplicas": rollout.total(sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, rollout.sizes(sets) - available),
    }
    status = {
        "observedGeneration": deployment["metadata"]["generation"],
        **{name: count for name, count in counts.items() if count},
        "terminatingReplicas": rollout.total(sets, "terminatingReplicas"),
        **{key: before[key] for key in ("conditions", "collisionCount") if key in before},
    }
    if available >= rollout.size(deployment) - rollout.most_unavailable(deployment):
        text = "Deployment has minimum availability."
        return with_condition(status, AVAILABLE, "True", "MinimumReplicasAvailable", text)
    text = "Deployment does not have minimum availability."
    return with_condition(status, AVAILABLE, "False", "MinimumReplicasUnavailable", text)


def _rolled_out(deployment: Json, new: Json | None, old: Sequence[Json]) -> Object:
    """The status during a rollout: its progress, and the failure of a ReplicaSet."""
    status, before = counted(deployment, new, old), deployment.get("status") or {}
    known = _condition_of(before, PROGRESSING)
    ended = known is not None and known["reason"] == NEW_IS_AVAILABLE
    if not _has_deadline(deployment):
        status = without(status, PROGRESSING)
    elif not (ended and status.get("replicas", 0) == status.get("updatedReplicas", 0)):
        name = deployment["metadata"]["name"]
        subject = f'Deployment "{name}"' if new is None else f'ReplicaSet "{new["metadata"]["name"]}"'
        status = _progressed(deployment, status, subject)
    failure = next(
        (found for one in [new, *old] if one and (found := _condition_of(one.get("status") or {}, FAILURE))),
        None,
    )
    if failure is None:
        return without(status, FAILURE)
    return with_condition(status, FAILURE, failure["status"], failure["reason"], failure["message"])


def is_complete(deployment: Json, status: Json) -> bool:
    """Whether all pods are new and available, and no others are there."""
    wanted = rollout.size(deployment)
    counts = [status.get(name, 0) for name in ("updatedReplicas", "replicas", "availableReplicas")]
    seen = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    return counts == [wanted] * 3 and seen


def _seconds_to_deadline(deployment: Json, status: Json) -> float | None:
    """In how many seconds a rollout without progress is over its deadline; None where none is watched."""
    known = _condition_of(status, PROGRESSING)
    if not _has_deadline(deployment) or known is None or known["reason"] in (TIMED_OUT, NEW_IS_AVAILABLE):
        return None
    if is_complete(deployment, status):
        return None
    # The deadline counts from the last progress (lastUpdateTime); a second more, since times are whole
    # seconds.
    return max(0.0, float(deployment["spec"]["progressDeadlineSeconds"]) - _age(known)) + 1.0


def _progressed(deployment: Json, status: Object, subject: str) -> Object:
    if is_complete(deployment, status):
        text = f"{subject} has successfully progressed."
        return with_condition(status, PROGRESSING, "True", NEW_IS_AVAILABLE, text)
    known = _condition_of(status, PROGRESSING)
    if _is_progressing(deployment.get("status") or {}, status):
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


def _is_progressing(before: Json, status: Json) -> bool:
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
