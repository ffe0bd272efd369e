"""Makes pods of Deployments, ReplicaSets and Jobs, as kube-controller-manager does.

StatefulSets, DaemonSets and CronJobs are stored without effect.
"""

from __future__ import annotations

from typing import Any

from envtest.embedded.control import kinds
from envtest.embedded.control.change_loop import Controller, ObjectBackOff
from envtest.embedded.control.objects import uid_of
from envtest.embedded.control.workloads.deployments import Deployments
from envtest.embedded.control.workloads.jobs import Jobs
from envtest.embedded.control.workloads.owned_pods import by_controller
from envtest.embedded.control.workloads.replica_sets import ReplicaSets
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
        pods = by_controller(self._objects.list(kinds.PODS))

        def reconcile(one: Object) -> float | None:
            mine = pods.get(uid_of(one), [])
            match one["kind"]:
                case "Job":
                    return self._jobs.sync(one, mine)
                case "Deployment":
                    return self._deployments.sync(one, pods)
            return self._replica_sets.sync(one, mine)

        return self._back_off.for_each(workloads, reconcile)
