"""Makes pods of Deployments, ReplicaSets, DaemonSets, StatefulSets and Jobs, as kube-controller-manager does.

CronJobs are not among them.
"""

from __future__ import annotations

from typing import Any

from envtest.embedded.control import kinds
from envtest.embedded.control.change_loop import Controller, ObjectBackOff, earliest
from envtest.embedded.control.objects import uid_of
from envtest.embedded.control.workloads.daemon_sets import DaemonSets
from envtest.embedded.control.workloads.deployments import Deployments
from envtest.embedded.control.workloads.jobs import Jobs, is_tracked
from envtest.embedded.control.workloads.owned_pods import by_controller, controller_uid
from envtest.embedded.control.workloads.replica_sets import ReplicaSets, siblings
from envtest.embedded.control.workloads.stateful_sets import StatefulSets
from envtest.embedded.server import EmbeddedApiServer

Object = dict[str, Any]

NAME = "workload controller"


class EmbeddedWorkloadController(Controller):
    """Reconciles all workloads after every change of one, or of a pod."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        sets = (kinds.DEPLOYMENTS, kinds.REPLICA_SETS, kinds.DAEMON_SETS, kinds.STATEFUL_SETS)
        watched = (*sets, kinds.JOBS, kinds.PODS, kinds.NODES)
        super().__init__(NAME, server, watched)
        self._deployments = Deployments(self._objects)
        self._replica_sets = ReplicaSets(self._objects)
        self._daemon_sets = DaemonSets(self._objects)
        self._stateful_sets = StatefulSets(self._objects)
        self._jobs = Jobs(self._objects)
        self._back_off = {kind: ObjectBackOff(NAME) for kind in watched}
        self._had_jobs = False

    def sync(self) -> float | None:
        """Reconcile all workloads once; returns in how many seconds one is due again."""
        deployments, sets = self._objects.list(kinds.DEPLOYMENTS), self._objects.list(kinds.REPLICA_SETS)
        daemons, stateful = self._objects.list(kinds.DAEMON_SETS), self._objects.list(kinds.STATEFUL_SETS)
        jobs = self._objects.list(kinds.JOBS)
        # Once there was a Job, pods may be left with its finalizer, also after it is gone.
        self._had_jobs = self._had_jobs or bool(jobs)
        if not (deployments or sets or daemons or stateful or self._had_jobs):
            return None
        pods, nodes = self._objects.list(kinds.PODS), self._objects.list(kinds.NODES)
        mine, families = by_controller(pods), by_controller(sets)
        live = {uid_of(job) for job in jobs}
        # Orphans of deleted Jobs: nobody else removes their finalizers, which keep them from being deleted.
        left = [pod for pod in pods if is_tracked(pod) and controller_uid(pod) not in live]
        return earliest(
            self._back_off[kinds.PODS].for_each(left, lambda pod: self._jobs.drop_finalizers([pod])),
            self._back_off[kinds.JOBS].for_each(
                jobs, lambda job: self._jobs.sync(job, mine.get(uid_of(job), []))
            ),
            self._back_off[kinds.DEPLOYMENTS].for_each(
                deployments, lambda one: self._deployments.sync(one, mine)
            ),
            self._back_off[kinds.REPLICA_SETS].for_each(
                sets, lambda one: self._replica_sets.sync(one, mine, siblings(one, families))
            ),
            self._back_off[kinds.DAEMON_SETS].for_each(
                daemons, lambda one: self._daemon_sets.sync(one, mine.get(uid_of(one), []), nodes)
            ),
            self._back_off[kinds.STATEFUL_SETS].for_each(
                stateful, lambda one: self._stateful_sets.sync(one, mine.get(uid_of(one), []))
            ),
        )
