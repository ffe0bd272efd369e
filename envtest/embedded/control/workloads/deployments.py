"""Rolls Deployments out over ReplicaSets, and scales them. Go: pkg/controller/deployment.

The deprecated rollback by an annotation is left out: kubectl writes the older template itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envtest.embedded.api.statuses import Refused
from envtest.embedded.control.objects import (
    CONFLICT,
    DEPLOYMENTS,
    REPLICA_SETS,
    Objects,
    is_deleted,
    is_terminal,
    uid_of,
)
from envtest.embedded.control.workloads import deployment_status as told
from envtest.embedded.control.workloads import rollout
from envtest.embedded.control.workloads.owned_pods import controlled_by
from envtest.embedded.control.workloads.revisions import revision_of, with_annotations
from kubernetes_rules.workload_defaults import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Object = dict[str, Any]

COMPONENT = "deployment-controller"
_LONGEST_NAME = 253


class Deployments:
    """Brings single Deployments in order. For one thread."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def sync(self, deployment: Object, pods: Mapping[str, Sequence[Object]]) -> float | None:
        """Take one step of a rollout or of a change of its size, and tell how it is.

        ``pods`` are all pods by their controller. Answers in how many seconds the rollout may be too late.
        """
        new, old = rollout.split(deployment, self._sets(deployment))
        if is_deleted(deployment):
            return self._tell(deployment, told.counted(deployment, new, old))
        deployment = self._paused_or_resumed(deployment)
        if new is not None:
            deployment, new = self._revised(deployment, new, old)
        if deployment["spec"].get("paused") or _is_scaled(deployment, [*old, *([new] if new else [])]):
            self._scale(deployment, new, old)
            if deployment["spec"].get("paused"):
                self._clean_up(deployment, old)
            new, old = rollout.split(deployment, self._sets(deployment))
            return self._tell(deployment, told.counted(deployment, new, old))
        if rollout.is_rolling(deployment):
            deployment = self._roll(deployment, new, old)
        else:
            deployment = self._recreate(deployment, new, old, pods)
        new, old = rollout.split(deployment, self._sets(deployment))
        return self._tell(deployment, told.rolled_out(deployment, new, old))

    def _sets(self, deployment: Object) -> list[Object]:
        """The ReplicaSets of a Deployment as they are now."""
        stored = self._objects.list_in(REPLICA_SETS, deployment["metadata"]["namespace"])
        uid = uid_of(deployment)
        return [
            one
            for one in stored
            if any(
                owner["uid"] == uid and owner.get("controller")
                for owner in one["metadata"].get("ownerReferences") or ()
            )
        ]

    def _tell(self, deployment: Object, status: Object) -> float | None:
        if status != deployment.get("status"):
            self._objects.replace_status(DEPLOYMENTS, deployment, status)
        return told.seconds_to_deadline(deployment, status)

    def _paused_or_resumed(self, deployment: Object) -> Object:
        """A paused Deployment is not late, and one that goes on has all of its time again."""
        status = deployment.get("status") or {}
        known = told.condition_of(status, told.PROGRESSING) or {}
        was, is_paused = known.get("reason") == told.PAUSED, bool(deployment["spec"].get("paused"))
        if not told.has_deadline(deployment) or was == is_paused or known.get("reason") == told.TIMED_OUT:
            return deployment
        reason, text = (
            (told.PAUSED, "Deployment is paused") if is_paused else (told.RESUMED, "Deployment is resumed")
        )
        status = told.with_condition(status, told.PROGRESSING, "Unknown", reason, text)
        return self._objects.replace_status(DEPLOYMENTS, deployment, status)

    def _revised(self, deployment: Object, new: Object, old: Sequence[Object]) -> tuple[Object, Object]:
        """The Deployment and its new ReplicaSet with the revision, which is the highest of all."""
        annotated = with_annotations(deployment, new, max([0, *map(revision_of, old)]) + 1)
        ready = deployment["spec"].get("minReadySeconds", 0)
        if annotated != new or ready != new["spec"].get("minReadySeconds", 0):
            changed = {**annotated, "spec": {**annotated["spec"], "minReadySeconds": ready}}
            new = self._objects.replace(REPLICA_SETS, changed if ready else annotated)
        status = deployment.get("status") or {}
        if told.has_deadline(deployment) and told.condition_of(status, told.PROGRESSING) is None:
            text = f'Found new replica set "{new["metadata"]["name"]}"'
            status = told.with_condition(status, told.PROGRESSING, "True", "FoundNewReplicaSet", text)
        return self._with_revision(deployment, revision_of(new), status), new

    def _with_revision(self, deployment: Object, revision: int, status: Object) -> Object:
        metadata = deployment["metadata"]
        annotations = {**(metadata.get("annotations") or {}), rollout.REVISION: str(revision)}
        if annotations == metadata.get("annotations") and status == (deployment.get("status") or {}):
            return deployment
        changed = {**deployment, "metadata": {**metadata, "annotations": annotations}}
        return self._objects.replace_status(DEPLOYMENTS, changed, status)

    def _roll(self, deployment: Object, new: Object | None, old: Sequence[Object]) -> Object:
        """One step of a rolling update: more new pods if there is room, else fewer old ones."""
        if new is None:
            deployment, new = self._made(deployment, old)
        wanted, sets = rollout.size(deployment), [*old, new]
        grown = wanted if rollout.size(new) > wanted else rollout.new_size(deployment, sets, new)
        if self._resize(deployment, new, grown) or self._shrink_old(deployment, new, rollout.active(old)):
            return deployment
        if told.is_complete(deployment, deployment.get("status") or {}):
            self._clean_up(deployment, old)
        return deployment

    def _shrink_old(self, deployment: Object, new: Object, old: Sequence[Object]) -> bool:
        """Take pods from old ReplicaSets, those that are not available first; whether any went."""
        most = rollout.most_to_shrink(deployment, old, new) if old else 0
        if most <= 0:
            return False
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
        running = [pod for one in old for pod in pods.get(uid_of(one), ()) if not is_terminal(pod)]
        if running or rollout.total(old, "replicas"):
            return deployment
        if new is None:
            deployment, new = self._made(deployment, old)
        self._resize(deployment, new, rollout.size(deployment))
        if told.is_complete(deployment, deployment.get("status") or {}):
            self._clean_up(deployment, old)
        return deployment

    def _scale(self, deployment: Object, new: Object | None, old: Sequence[Object]) -> None:
        """Follow a change of the size: the one ReplicaSet with pods alone, several in proportion."""
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
        """Give a ReplicaSet another size; whether it had another. ``always`` renews its annotations, too."""
        before = rollout.size(one)
        if before == wanted and not always:
            return False
        metadata = one["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **_sizes_noted(deployment)}
        if before == wanted and annotations == metadata.get("annotations"):
            return False
        spec = {**one["spec"], "replicas": wanted}
        changed = {**one, "metadata": {**metadata, "annotations": annotations}, "spec": spec}
        self._objects.replace(REPLICA_SETS, changed)
        if before != wanted:
            way, name = "up" if before < wanted else "down", metadata["name"]
            text = f"Scaled {way} replica set {name} from {before} to {wanted}"
            self._objects.tell("Deployment", deployment, "Normal", "ScalingReplicaSet", text, COMPONENT)
        return before != wanted

    def _made(self, deployment: Object, old: Sequence[Object]) -> tuple[Object, Object]:
        """The Deployment and the ReplicaSet that is made for its template. Raises Refused."""
        status = deployment.get("status") or {}
        revision = max([0, *map(revision_of, old)]) + 1
        wanted = _new_set(deployment, status.get("collisionCount", 0))
        wanted["spec"]["replicas"] = rollout.new_size(deployment, [*old, wanted], wanted)
        wanted = with_annotations(deployment, wanted, revision)
        wanted["metadata"]["annotations"] |= _sizes_noted(deployment)
        name = wanted["metadata"]["name"]
        try:
            made = self._objects.create(REPLICA_SETS, deployment["metadata"]["namespace"], wanted)
        except Refused as refused:
            self._tell_refused(deployment, name, refused)
            raise
        if rollout.size(made):
            text = f"Scaled up replica set {name} from 0 to {rollout.size(made)}"
            self._objects.tell("Deployment", deployment, "Normal", "ScalingReplicaSet", text, COMPONENT)
        if told.has_deadline(deployment):
            text = f'Created new replica set "{name}"'
            status = told.with_condition(status, told.PROGRESSING, "True", "NewReplicaSetCreated", text)
        return self._with_revision(deployment, revision, status), made

    def _tell_refused(self, deployment: Object, name: str, refused: Refused) -> None:
        """A name that is taken is a collision of hashes: the next try takes another one."""
        status = deployment.get("status") or {}
        if refused.code == CONFLICT:
            status = {**status, "collisionCount": status.get("collisionCount", 0) + 1}
            self._objects.replace_status(DEPLOYMENTS, deployment, status)
            return
        text, reason = f'Failed to create new replica set "{name}": {refused}', "ReplicaSetCreateError"
        if told.has_deadline(deployment):
            status = told.with_condition(status, told.PROGRESSING, "False", reason, text)
            self._objects.replace_status(DEPLOYMENTS, deployment, status)
        self._objects.tell("Deployment", deployment, "Warning", reason, text, COMPONENT)

    def _clean_up(self, deployment: Object, old: Sequence[Object]) -> None:
        """Delete the oldest ReplicaSets without pods, as many as are more than the history is to have."""
        limit = deployment["spec"].get("revisionHistoryLimit", UNLIMITED)
        ordered = sorted(old, key=lambda one: (revision_of(one), one["metadata"]["creationTimestamp"]))
        for one in ordered[: max(0, len(old) - limit)]:
            status = one.get("status") or {}
            seen = status.get("observedGeneration", 0) >= one["metadata"]["generation"]
            if seen and not rollout.size(one) and not status.get("replicas"):
                self._objects.delete(REPLICA_SETS, one)


def _is_scaled(deployment: Object, sets: Sequence[Object]) -> bool:
    """Whether a ReplicaSet with pods was sized for another number of pods of the Deployment."""
    wanted = str(rollout.size(deployment))
    noted = [(one["metadata"].get("annotations") or {}).get(rollout.DESIRED) for one in rollout.active(sets)]
    return any(number not in (None, wanted) for number in noted)


def _sizes_noted(deployment: Object) -> dict[str, str]:
    wanted = rollout.size(deployment)
    return {rollout.DESIRED: str(wanted), rollout.MOST: str(wanted + rollout.most_surge(deployment))}


def _new_set(deployment: Object, collisions: int) -> Object:
    """A ReplicaSet of no pods for the Deployment's template, whose hash its pods are known by."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    template = spec["template"]
    digest = rollout.template_hash(template, collisions)
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
