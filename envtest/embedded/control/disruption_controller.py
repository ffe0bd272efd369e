"""Keeps the status of PodDisruptionBudgets, as the controller in kube-controller-manager does.

Deployments and ReplicaSets say how many pods there should be. A Job does not, nor does a pod that nothing
manages: a budget with ``maxUnavailable`` or with percents allows no disruption of those.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from envtest.embedded.control import kinds
from envtest.embedded.control.change_loop import Controller, ObjectBackOff
from envtest.embedded.control.objects import is_deleted, uid_of
from envtest.embedded.control.workloads.owned_pods import controller_uid
from envtest.embedded.server import EmbeddedApiServer
from kubernetes_rules import disruption_budgets as budget_rules

Object = dict[str, Any]

NAME = "disruption controller"
_COMPONENT = "controllermanager"


class EmbeddedDisruptionController(Controller):
    """Reconciles all budgets after every change of one, of a pod, or of a workload."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        super().__init__(NAME, server, (kinds.PODS, kinds.BUDGETS, kinds.DEPLOYMENTS, kinds.REPLICA_SETS))
        self._back_off = ObjectBackOff(NAME)

    def sync(self) -> float | None:
        """Write the status of all budgets; returns in how many seconds one is due again."""
        budgets = self._objects.list(kinds.BUDGETS)
        if not budgets:
            return None
        pods, scales = self._objects.list(kinds.PODS), self._scales()
        return self._back_off.for_each(budgets, lambda budget: self._sync_budget(budget, pods, scales))

    def _scales(self) -> dict[str, budget_rules.Scaled]:
        """How many pods each owner of pods wants; a ReplicaSet of a Deployment wants what that says."""
        deployments = {uid_of(one): one for one in self._objects.list(kinds.DEPLOYMENTS)}
        # A Job has no subresource scale, so a percentage of its pods cannot be worked out.
        found = {
            uid_of(job): budget_rules.Scaled(uid_of(job), None, "jobs.batch")
            for job in self._objects.list(kinds.JOBS)
        }
        for one in self._objects.list(kinds.REPLICA_SETS):
            wanting = deployments.get(controller_uid(one), one)
            found[uid_of(one)] = budget_rules.Scaled(uid_of(wanting), wanting["spec"].get("replicas", 1))
        return found

    def _sync_budget(
        self, budget: Object, pods: list[Object], scales: Mapping[str, budget_rules.Scaled]
    ) -> float | None:
        if is_deleted(budget):
            return None
        now, namespace = datetime.now(UTC), budget["metadata"]["namespace"]
        mine = [
            pod
            for pod in pods
            if pod["metadata"]["namespace"] == namespace and budget_rules.budget_selects(budget, pod)
        ]
        loose = budget_rules.unmanaged(mine) if budget_rules.needs_scale(budget) else []
        try:
            status = budget_rules.new_status(budget, mine, scales, now)
        except budget_rules.NotCounted as error:
            text = f"Failed to calculate the number of expected pods: {error.what}"
            self._post_warning(budget, "CalculateExpectedPodCountFailed", text)
            status, loose = budget_rules.failed_status(budget, error.what, now), []
        if loose:
            self._post_warning(budget, "UnmanagedPods", _unmanaged_text(budget))
        if status != budget.get("status"):
            self._objects.replace_status(kinds.BUDGETS, budget, status)
        # An evicted pod counts as disrupted until it is gone, or until a time-out.
        return budget_rules.seconds_to_recheck(status, now)

    def _post_warning(self, budget: Object, reason: str, text: str) -> None:
        """Post a warning once for each change of the spec: otherwise each sync would count it again."""
        if (budget.get("status") or {}).get("observedGeneration", 0) < budget["metadata"]["generation"]:
            self._objects.post_event(budget, "Warning", reason, text, _COMPONENT)


def _unmanaged_text(budget: Object) -> str:
    selector = (budget.get("spec") or {}).get("selector")
    return (
        f"Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. "
        "As a result, the status of the PDB cannot be calculated correctly, which may result in undefined "
        "behavior. "
        'To account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.'
    )
