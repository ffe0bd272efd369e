"""Makes pods of Deployments, ReplicaSets and Jobs, as kube-controller-manager does.

Go: pkg/controller/replicaset. StatefulSets, DaemonSets and CronJobs are stored without effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envtest.embedded.api.defaults import now
from envtest.embedded.api.statuses import Refused
from envtest.embedded.control import kinds
from envtest.embedded.control.change_loop import Controller, ObjectBackOff
from envtest.embedded.control.objects import Objects, is_deleted, uid_of
from envtest.embedded.control.workloads import owned_pods
from envtest.embedded.control.workloads.deployments import Deployments
from envtest.embedded.control.workloads.jobs import Jobs
from envtest.embedded.server import EmbeddedApiServer

Object = dict[str, Any]

NAME = "workload controller"


class EmbeddedWorkloadController(Controller):
    """Reconciles all workloads after every change of one, or of a pod."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        super().__init__(NAME, server, (kinds.DEPLOYMENTS, kinds.REPLICA_SETS, kinds.JOBS, kinds.PODS))
        self._deployments = Deployments(self._objects)
        self._replica_sets = ReplicaSets(self._objects)
        self._jobs = Jobs(self._objects)
        self._back_off = ObjectBackOff(NAME)

    def sync(self) -> float | None:
        """Reconcile all workloads once; returns in how many seconds one is due again."""
        workloads = [
            *self._objects.list(kinds.JOBS),
            *self._objects.list(kinds.DEPLOYMENTS),
            *self._objects.list(kinds.REPLICA_SETS),
        ]
        if not workloads:
            return None
        pods = owned_pods.by_controller(self._objects.list(kinds.PODS))

        def reconcile(one: Object) -> float | None:
            mine = pods.get(uid_of(one), [])
            match one["kind"]:
                case "Job":
                    return self._jobs.sync(one, mine)
                case "Deployment":
                    return self._deployments.sync(one, pods)
            return self._replica_sets.sync(one, mine)

        return self._back_off.for_each(workloads, reconcile)


_COMPONENT = "replicaset-controller"


class ReplicaSets:
    """Reconciles single ReplicaSets. For one thread."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._pods = owned_pods.OwnedPods(objects, _COMPONENT)

    def sync(self, replica_set: Object, mine: Sequence[Object]) -> float | None:
        """Create or delete pods until their number is right, and write the status.

        ``mine`` are its pods. Returns in how many seconds a refused write is to be tried again.
        """
        active = [pod for pod in mine if owned_pods.is_active(pod)]
        refused = None if is_deleted(replica_set) else self._managed(replica_set, active)
        status = _status(replica_set, active, mine, refused)
        if status != replica_set.get("status"):
            self._objects.replace_status(kinds.REPLICA_SETS, replica_set, status)
        return None if refused is None else owned_pods.REFUSED_SECONDS

    def _managed(self, replica_set: Object, active: Sequence[Object]) -> Refused | None:
        """Create or delete pods; returns the refusal that stopped it, None where none did."""
        missing = replica_set["spec"].get("replicas", 1) - len(active)
        template = replica_set["spec"]["template"]
        try:
            for _ in range(missing):
                self._pods.create(replica_set, owned_pods.pod_of(replica_set, template))
            for pod in owned_pods.deletion_order(active)[: max(0, -missing)]:
                self._pods.delete(replica_set, pod)
        except Refused as refused:
            return refused
        return None


def _status(
    replica_set: Object,
    active: Sequence[Object],
    mine: Sequence[Object],
    refused: Refused | None,
) -> Object:
    ready = sum(map(owned_pods.is_ready, active))
    counts = {"fullyLabeledReplicas": len(active), "readyReplicas": ready, "availableReplicas": ready}
    before = list((replica_set.get("status") or {}).get("conditions") or ())
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": str(refused)}
    # The condition of a failure is left as it was written first.
    conditions = [] if refused is None else before or [{**failure, "lastTransitionTime": now()}]
    return {
        "replicas": len(active),
        **{name: count for name, count in counts.items() if count},
        "terminatingReplicas": sum(map(owned_pods.is_terminating, mine)),
        "observedGeneration": replica_set["metadata"]["generation"],
        **({"conditions": conditions} if conditions else {}),
    }
