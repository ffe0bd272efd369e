"""Keeps the status of PodDisruptionBudgets, as the controller in kube-controller-manager does.

Deployments and ReplicaSets say how many pods there should be. A Job does not, nor does a pod that nothing
manages: a budget with ``maxUnavailable`` or with percents allows no disruption of those.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from envtest.embedded.api.server import EmbeddedApiServer
from envtest.embedded.control.change_loop import Controller, Turns
from envtest.embedded.control.objects import (
    BUDGETS,
    DEPLOYMENTS,
    JOBS,
    PODS,
    REPLICA_SETS,
    is_deleted,
    uid_of,
)
from envtest.embedded.control.workloads.owned_pods import controller_uid
from kubernetes_rules.disruption_budgets import (
    NotCounted,
    Scaled,
    budget_selects,
    failed_status,
    needs_scale,
    new_status,
    seconds_to_recheck,
    unmanaged,
)

Object = dict[str, Any]

NAME = "disruption controller"
_COMPONENT = "controllermanager"


class EmbeddedDisruptionController(Controller):
    """Looks at all budgets again after every change of one, or of a pod."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        super().__init__(NAME, server, (PODS, BUDGETS, DEPLOYMENTS, REPLICA_SETS))
        self._turns = Turns(NAME)

    def sync(self) -> float | None:
        """Bring the status of all budgets in order; in how many seconds one is due again."""
        budgets = self._objects.list(BUDGETS)
        pods = self._objects.list(PODS) if budgets else []
        scales = self._scales() if budgets else {}
        return self._turns.give(budgets, lambda budget: self._sync_budget(budget, pods, scales))

    def _scales(self) -> dict[str, Scaled]:
        """How many pods each owner of pods should have; a Deployment says it for its ReplicaSets."""
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
        mine = [
            pod for pod in pods if pod["metadata"]["namespace"] == namespace and budget_selects(budget, pod)
        ]
        loose = unmanaged(mine) if needs_scale(budget) else []
        try:
            status = new_status(budget, mine, scales, now)
        except NotCounted as error:
            text = f"Failed to calculate the number of expected pods: {error.what}"
            self._post_warning(budget, "CalculateExpectedPodCountFailed", text)
            status, loose = failed_status(budget, error.what, now), []
        if loose:
            self._post_warning(budget, "UnmanagedPods", _unmanaged_text(budget))
        if status != budget.get("status"):
            self._objects.replace_status(BUDGETS, budget, status)
        return seconds_to_recheck(status, now)

    def _post_warning(self, budget: Object, reason: str, text: str) -> None:
        """Post a warning if the status is about to change: otherwise each sync would count it again."""
        if (budget.get("status") or {}).get("observedGeneration", 0) < budget["metadata"]["generation"]:
            self._objects.post_event("PodDisruptionBudget", budget, "Warning", reason, text, _COMPONENT)


def _unmanaged_text(budget: Object) -> str:
    selector = (budget.get("spec") or {}).get("selector")
    return (
        f"Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. "
        "As a result, the status of the PDB cannot be calculated correctly, which may result in undefined "
        "behavior. "
        'To account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.'
    )
