"""Keeps the status of PodDisruptionBudgets, as the controller in kube-controller-manager does.

How many pods there should be, Deployments and ReplicaSets say. A Job does not, nor does a pod that nothing
manages: a budget with ``maxUnavailable`` or with percents allows no disruption of those.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from driver.process.service import Service
from envtest.embedded.control.change_loop import ChangeLoop
from envtest.embedded.control.objects import (
    BUDGETS,
    DEPLOYMENTS,
    JOBS,
    PODS,
    REPLICA_SETS,
    Objects,
    is_deleted,
    uid_of,
)
from envtest.embedded.control.turns import Turns
from envtest.embedded.control.workloads.owned_pods import controller_uid
from kubernetes_rules.disruption_budgets import (
    NotCounted,
    Scaled,
    failed_status,
    needs_scale,
    new_status,
    seconds_to_recheck,
    selects,
    unmanaged,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envtest.embedded.api.server import EmbeddedApiServer

Object = dict[str, Any]

NAME = "disruption controller"
COMPONENT = "controllermanager"


class EmbeddedDisruptionController:
    """Looks at all budgets again after every change of one, or of a pod."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        self._objects = Objects(server)
        self._service = Service()
        self._turns = Turns(NAME)
        watched = (PODS, BUDGETS, DEPLOYMENTS, REPLICA_SETS)
        self._loop = ChangeLoop(NAME, server, watched, self.sync)

    def start(self) -> None:
        """Run in a thread of its own until ``stop``."""
        self._loop.start(self._service)

    def stop(self) -> None:
        """End the thread."""
        self._service.stop()

    def sync(self) -> float | None:
        """Bring the status of all budgets in order; in how many seconds one is due again."""
        budgets = self._objects.list(BUDGETS)
        pods = self._objects.list(PODS) if budgets else []
        scales = self._scales() if budgets else {}
        return self._turns.give(budgets, lambda budget: self._sync_budget(budget, pods, scales))

    def _scales(self) -> dict[str, Scaled]:
        """How many pods each controller of pods is to have: a Deployment says it for its ReplicaSets."""
        deployments = {uid_of(one): one for one in self._objects.list(DEPLOYMENTS)}
        found = {uid_of(job): Scaled(uid_of(job), None, "jobs.batch") for job in self._objects.list(JOBS)}
        for one in self._objects.list(REPLICA_SETS):
            wanting = deployments.get(controller_uid(one), one)
            found[uid_of(one)] = Scaled(uid_of(wanting), wanting["spec"].get("replicas", 1))
        return found

    def _sync_budget(self, budget: Object, pods: list[Object], scales: Mapping[str, Scaled]) -> float | None:
        if is_deleted(budget):
            return None
        now, namespace = datetime.now(UTC), budget["metadata"]["namespace"]
        mine = [pod for pod in pods if pod["metadata"]["namespace"] == namespace and selects(budget, pod)]
        loose = unmanaged(mine) if needs_scale(budget) else []
        try:
            status = new_status(budget, mine, scales, now)
        except NotCounted as error:
            text = f"Failed to calculate the number of expected pods: {error.what}"
            self._tell(budget, "CalculateExpectedPodCountFailed", text)
            status, loose = failed_status(budget, error.what, now), []
        if loose:
            self._tell(budget, "UnmanagedPods", _unmanaged_text(budget))
        if status != budget.get("status"):
            self._objects.replace_status(BUDGETS, budget, status)
        return seconds_to_recheck(status, now)

    def _tell(self, budget: Object, reason: str, text: str) -> None:
        """Post a warning where the status is about to change for it: each look would count it again."""
        if (budget.get("status") or {}).get("observedGeneration", 0) < budget["metadata"]["generation"]:
            self._objects.tell("PodDisruptionBudget", budget, "Warning", reason, text, COMPONENT)


def _unmanaged_text(budget: Object) -> str:
    selector = (budget.get("spec") or {}).get("selector")
    return (
        f"Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. "
        "As a result, the status of the PDB cannot be calculated correctly, which may result in undefined "
        "behavior. "
        'To account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.'
    )
