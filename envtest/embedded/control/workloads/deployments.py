"""Rolls Deployments out over ReplicaSets, and writes their status. Go: pkg/controller/deployment.

Left out are the history of revisions, pauses (a paused Deployment is left as it is), progress deadlines, and
minReadySeconds, and scaling in proportion during a rollout: the newest ReplicaSet is scaled.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from envtest.embedded.api.defaults import now
from envtest.embedded.control import kinds
from envtest.embedded.control.objects import Objects, is_deleted, is_terminal, uid_of
from envtest.embedded.control.workloads.owned_pods import controlled_by, controller_uid

Object = dict[str, Any]
Json = Mapping[str, Any]

HASH_LABEL = "pod-template-hash"
_COMPONENT = "deployment-controller"
_LONGEST_NAME = 253
# Kubernetes hashes otherwise; as there, a hash has no vowels that could make words.
_LETTERS = str.maketrans("0123456789abcdef", "2456789bcdfghjkl")
_HASH_LENGTH = 10


class Deployments:
    """Reconciles single Deployments. For one thread."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def sync(self, deployment: Object, pods: Mapping[str, Sequence[Object]]) -> float | None:
        """Take one step of a rollout, and write the status. ``pods`` are all pods by their controller."""
        if not (is_deleted(deployment) or deployment["spec"].get("paused")):
            self._step(deployment, pods)
        new, old = self._sets(deployment)
        status = _status(deployment, new, old)
        if status != deployment.get("status"):
            self._objects.replace_status(kinds.DEPLOYMENTS, deployment, status)
        return None

    def _sets(self, deployment: Object) -> tuple[Object | None, list[Object]]:
        """The ReplicaSet of the present template, None before there is one, and others from the oldest."""
        stored = self._objects.list_in(kinds.REPLICA_SETS, deployment["metadata"]["namespace"])
        mine = [one for one in stored if controller_uid(one) == uid_of(deployment)]
        mine.sort(key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]))
        name = _set_name(deployment)
        new = next((one for one in mine if one["metadata"]["name"] == name), None)
        return new, [one for one in mine if one is not new]

    def _step(self, deployment: Object, pods: Mapping[str, Sequence[Object]]) -> None:
        new, old = self._sets(deployment)
        if deployment["spec"]["strategy"]["type"] == "Recreate":
            for one in old:
                self._resize(deployment, one, 0)
            # The first new pod waits for the end of the last old one.
            if any(not is_terminal(pod) for one in old for pod in pods.get(uid_of(one), ())):
                return
        surge, unavailable = _bounds(deployment)
        wanted, before = _size(deployment), 0 if new is None else _size(new)
        room = wanted + surge - sum(map(_size, old)) - before
        size = min(wanted, before + max(0, room))
        new = self._made(deployment, size) if new is None else self._resize(deployment, new, size)
        # Pods that are not available go first: to lose them costs nothing.
        least = wanted - unavailable
        spare = sum(map(_size, (*old, new))) - least - (_size(new) - _total([new], "availableReplicas"))
        broken = {uid_of(one): _size(one) - _total([one], "availableReplicas") for one in old}
        healthy_spare = _total((*old, new), "availableReplicas") - least
        for one in old:
            gone = max(0, min(spare, broken[uid_of(one)]))
            further = max(0, min(spare - gone, healthy_spare, _size(one) - gone))
            self._resize(deployment, one, _size(one) - gone - further)
            spare, healthy_spare = spare - gone - further, healthy_spare - further

    def _made(self, deployment: Object, size: int) -> Object:
        """A ReplicaSet of this size for the present template."""
        made = self._objects.create(
            kinds.REPLICA_SETS, deployment["metadata"]["namespace"], _new_set(deployment, size)
        )
        if size:
            self._tell(deployment, made, 0, size)
        return made

    def _resize(self, deployment: Object, one: Object, wanted: int) -> Object:
        """The ReplicaSet with this size."""
        before = _size(one)
        if before == wanted:
            return one
        resized = self._objects.replace(
            kinds.REPLICA_SETS, {**one, "spec": {**one["spec"], "replicas": wanted}}
        )
        self._tell(deployment, one, before, wanted)
        return resized

    def _tell(self, deployment: Object, one: Object, before: int, size: int) -> None:
        way, name = "up" if before < size else "down", one["metadata"]["name"]
        text = f"Scaled {way} replica set {name} from {before} to {size}"
        self._objects.post_event(deployment, "Normal", "ScalingReplicaSet", text, _COMPONENT)


def _size(workload: Json) -> int:
    """How many pods a Deployment or a ReplicaSet wants."""
    return int(workload["spec"].get("replicas", 1))


def _total(sets: Iterable[Json], field: str) -> int:
    """The sum of a number in the status of ReplicaSets."""
    return sum(int((one.get("status") or {}).get(field, 0)) for one in sets)


def _bounds(deployment: Json) -> tuple[int, int]:
    """maxSurge and maxUnavailable in pods; maxUnavailable is 1 where both are rounded to 0."""
    wanted, limits = _size(deployment), deployment["spec"]["strategy"].get("rollingUpdate")
    if limits is None:
        return 0, wanted
    surge = _scaled(limits["maxSurge"], wanted, math.ceil)
    unavailable = _scaled(limits["maxUnavailable"], wanted, math.floor)
    return surge, min(wanted, unavailable if surge or unavailable else 1)


def _scaled(value: int | str, wanted: int, rounded: Any) -> int:
    return value if isinstance(value, int) else int(rounded(int(value.removesuffix("%")) * wanted / 100))


def template_hash(template: Json) -> str:
    """The label that distinguishes the pods of one template from those of another."""
    text = json.dumps(template, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH].translate(_LETTERS)


def _set_name(deployment: Json) -> str:
    """The name of the ReplicaSet of the present template."""
    digest = template_hash(deployment["spec"]["template"])
    return f"{deployment['metadata']['name'][: _LONGEST_NAME - len(digest) - 1]}-{digest}"


def _new_set(deployment: Object, size: int) -> Object:
    """A ReplicaSet for the Deployment's template; the hash is in its selector."""
    spec, template = deployment["spec"], deployment["spec"]["template"]
    # Tells the pods of this template from those of the others, which have the same labels otherwise.
    known_by = {HASH_LABEL: template_hash(template)}
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), **known_by}
    selector = {
        **spec["selector"],
        "matchLabels": {**(spec["selector"].get("matchLabels") or {}), **known_by},
    }
    owner = controlled_by(deployment)
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": _set_name(deployment), "labels": labels, "ownerReferences": [owner]},
        "spec": {
            "replicas": size,
            "selector": selector,
            "template": {**template, "metadata": {**metadata, "labels": labels}},
        },
    }


def _status(deployment: Json, new: Json | None, old: Sequence[Json]) -> Object:
    """The status, summed up over the ReplicaSets."""
    current = [new] if new is not None else []
    sets, wanted = [*old, *current], _size(deployment)
    available = _total(sets, "availableReplicas")
    counts = {
        "replicas": _total(sets, "replicas"),
        "updatedReplicas": _total(current, "replicas"),
        "readyReplicas": _total(sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(map(_size, sets)) - available),
    }
    before = {one["type"]: one for one in (deployment.get("status") or {}).get("conditions") or ()}
    if available >= wanted - _bounds(deployment)[1]:
        text = "Deployment has minimum availability."
        conditions = [_condition(before, "Available", "True", "MinimumReplicasAvailable", text)]
    else:
        text = "Deployment does not have minimum availability."
        conditions = [_condition(before, "Available", "False", "MinimumReplicasUnavailable", text)]
    subject = "" if new is None else f'ReplicaSet "{new["metadata"]["name"]}" '
    if [counts["updatedReplicas"], counts["replicas"], available] == [wanted] * 3:
        reason, text = "NewReplicaSetAvailable", f"{subject}has successfully progressed."
    else:
        reason, text = "ReplicaSetUpdated", f"{subject}is progressing."
    conditions.append(_condition(before, "Progressing", "True", reason, text))
    known = [one for each in (*current, *old) for one in (each.get("status") or {}).get("conditions") or ()]
    # The only condition of a ReplicaSet is ReplicaFailure.
    for one in known[:1]:
        conditions.append(_condition(before, one["type"], one["status"], one["reason"], one["message"]))
    return {
        "observedGeneration": deployment["metadata"]["generation"],
        **{name: count for name, count in counts.items() if count},
        "terminatingReplicas": _total(sets, "terminatingReplicas"),
        "conditions": conditions,
    }


def _condition(before: Mapping[str, Json], kind: str, value: str, reason: str, message: str) -> Object:
    """A condition; one of the same status and reason is left as it is."""
    known = before.get(kind)
    if known is not None and (known["status"], known["reason"]) == (value, reason):
        return dict(known)
    since = known["lastTransitionTime"] if known is not None and known["status"] == value else now()
    condition = {"type": kind, "status": value, "reason": reason, "message": message}
    return {**condition, "lastUpdateTime": now(), "lastTransitionTime": since}
