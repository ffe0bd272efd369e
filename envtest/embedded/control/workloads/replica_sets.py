"""Makes and deletes pods until each ReplicaSet has the wanted number. Go: pkg/controller/replicaset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envtest.embedded.api.defaults import now
from envtest.embedded.api.statuses import Refused
from envtest.embedded.control import kinds
from envtest.embedded.control.change_loop import AGAIN_SECONDS, back_off_seconds
from envtest.embedded.control.objects import Objects, is_deleted, uid_of
from envtest.embedded.control.workloads import owned_pods

Object = dict[str, Any]

_COMPONENT = "replicaset-controller"
# BurstReplicas of the controller.
_MOST_AT_ONCE = 500
_FAILURE = "ReplicaFailure"


class ReplicaSets:
    """Reconciles single ReplicaSets. For one thread."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._pods = owned_pods.OwnedPods(objects, _COMPONENT)
        self._refusals: dict[str, int] = {}

    def sync(
        self, replica_set: Object, pods: Mapping[str, Sequence[Object]], related: Sequence[Object]
    ) -> float | None:
        """Create or delete pods until their number is right, and write the status.

        ``pods`` are all pods by their controller, ``related`` the ReplicaSets of the same Deployment.
        Returns in how many seconds a pod may become available, or a refused write is to be tried again.
        """
        mine = pods.get(uid_of(replica_set), ())
        active = [pod for pod in mine if owned_pods.is_active(pod)]
        refused = None
        if not is_deleted(replica_set):
            # Where pods are taken away, the nodes with the most pods of the whole application give first.
            related_pods = [pod for one in related for pod in pods.get(uid_of(one), ())]
            refused = self._managed(replica_set, active, related_pods)
        waits = [
            owned_pods.seconds_to_available(pod, replica_set["spec"].get("minReadySeconds", 0))
            for pod in active
        ]
        status = _status(replica_set, active, mine, waits, refused)
        if status != replica_set.get("status"):
            self._objects.replace_status(kinds.REPLICA_SETS, replica_set, status)
        due = [wait for wait in waits if wait]
        return min([*due, *self._again(uid_of(replica_set), refused)], default=None)

    def _managed(
        self, replica_set: Object, active: Sequence[Object], related: Sequence[Object]
    ) -> Refused | None:
        """Create or delete pods; returns the refusal that stopped it, None where none did."""
        missing = replica_set["spec"].get("replicas", 1) - len(active)
        try:
            for _ in range(min(missing, _MOST_AT_ONCE)):
                self._pods.create(
                    replica_set, owned_pods.pod_of(replica_set, replica_set["spec"]["template"])
                )
            for pod in owned_pods.deletion_order(active, related)[: max(0, -missing)]:
                self._pods.delete(replica_set, pod)
        except Refused as refused:
            return refused
        return None

    def _again(self, uid: str, refused: Refused | None) -> list[float]:
        """In how many seconds to try a refused write again; any change of a pod has it tried sooner."""
        if refused is None:
            self._refusals.pop(uid, None)
            return []
        self._refusals[uid] = self._refusals.get(uid, 0) + 1
        return [back_off_seconds(self._refusals[uid], AGAIN_SECONDS)]


def siblings(replica_set: Object, by_owner: Mapping[str, Sequence[Object]]) -> Sequence[Object]:
    """The ReplicaSets of the same Deployment, itself included."""
    owner = owned_pods.controller_uid(replica_set)
    return by_owner.get(owner, ()) if owner else [replica_set]


def _status(
    replica_set: Object,
    active: Sequence[Object],
    mine: Sequence[Object],
    waits: Sequence[float | None],
    refused: Refused | None,
) -> Object:
    labels = (replica_set["spec"]["template"].get("metadata") or {}).get("labels") or {}
    counts = {
        "fullyLabeledReplicas": sum(
            labels.items() <= (pod["metadata"].get("labels") or {}).items() for pod in active
        ),
        "readyReplicas": sum(wait is not None for wait in waits),
        "availableReplicas": sum(wait == 0 for wait in waits),
    }
    conditions = _conditions(replica_set, len(active), refused)
    return {
        "replicas": len(active),
        **{name: count for name, count in counts.items() if count},
        "terminatingReplicas": sum(map(owned_pods.is_terminating, mine)),
        "observedGeneration": replica_set["metadata"]["generation"],
        **({"conditions": conditions} if conditions else {}),
    }


def _conditions(replica_set: Object, count: int, refused: Refused | None) -> list[Object]:
    """The conditions; that of a failure is left as it was written first."""
    before = (replica_set.get("status") or {}).get("conditions") or []
    known = [one for one in before if one["type"] == _FAILURE]
    others = [one for one in before if one["type"] != _FAILURE]
    if refused is None:
        return others
    reason = "FailedCreate" if count < replica_set["spec"].get("replicas", 1) else "FailedDelete"
    condition = {"type": _FAILURE, "status": "True", "reason": reason, "message": str(refused)}
    return [*others, *(known or [{**condition, "lastTransitionTime": now()}])]
