"""Makes pods of Deployments, ReplicaSets and Jobs, as the controllers in kube-controller-manager do.

DaemonSets, StatefulSets and CronJobs are not among them.
"""

from __future__ import annotations

from typing import Any

from envtest.embedded.api.server import EmbeddedApiServer
from envtest.embedded.control.change_loop import Controller, Turns, earliest
from envtest.embedded.control.objects import DEPLOYMENTS, JOBS, PODS, REPLICA_SETS, uid_of
from envtest.embedded.control.workloads.deployments import Deployments
from envtest.embedded.control.workloads.jobs import Jobs, is_tracked
from envtest.embedded.control.workloads.owned_pods import by_controller, controller_uid
from envtest.embedded.control.workloads.replica_sets import ReplicaSets, siblings

Object = dict[str, Any]

NAME = "workload controller"


class EmbeddedWorkloadController(Controller):
    """Looks at all workloads again after every change of one, or of a pod."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        super().__init__(NAME, server, (DEPLOYMENTS, REPLICA_SETS, JOBS, PODS))
        self._deployments = Deployments(self._objects)
        self._replica_sets = ReplicaSets(self._objects)
        self._jobs = Jobs(self._objects)
        self._turns = {kind: Turns(NAME) for kind in (DEPLOYMENTS, REPLICA_SETS, JOBS, PODS)}
        self._had_jobs = False

    def sync(self) -> float | None:
        """Bring all workloads in order once; in how many seconds one is due again."""
        deployments, sets, jobs = (self._objects.list(kind) for kind in (DEPLOYMENTS, REPLICA_SETS, JOBS))
        self._had_jobs = self._had_jobs or bool(jobs)
        if not (deployments or sets or self._had_jobs):
            return None
        pods = self._objects.list(PODS)
        mine, families = by_controller(pods), by_controller(sets)
        live = {uid_of(job) for job in jobs}
        left = [pod for pod in pods if is_tracked(pod) and controller_uid(pod) not in live]
        return earliest(
            self._turns[PODS].give(left, lambda pod: self._jobs.let_go([pod])),
            self._turns[JOBS].give(jobs, lambda job: self._jobs.sync(job, mine.get(uid_of(job), []))),
            self._turns[DEPLOYMENTS].give(deployments, lambda one: self._deployments.sync(one, mine)),
            self._turns[REPLICA_SETS].give(
                sets, lambda one: self._replica_sets.sync(one, mine, siblings(one, families))
            ),
        )
