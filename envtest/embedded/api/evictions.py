"""Evicts pods as the Eviction API does: unless a PodDisruptionBudget of the pod forbids it now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from envtest.embedded.api.defaults import now as time_now
from envtest.embedded.api.statuses import Refused, untyped
from kubernetes_rules.disruption_budgets import selects
from kubernetes_rules.evictions import (
    RETRY_SECONDS,
    is_processed,
    may_ignore_budgets,
    refusal,
    status_after_eviction,
    still_processed,
    takes_nothing,
)

if TYPE_CHECKING:
    from envtest.embedded.api.removal import Removal
    from envtest.embedded.api.store import Store

Object = dict[str, Any]

_PODS = ("", "pods")
_BUDGETS = ("policy", "poddisruptionbudgets")
_VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."
_CONDITION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


def evict(store: Store, removal: Removal, pod: Object, options: Object, *, dry: bool) -> None:
    """Delete the pod as ``options`` say, and take it from its budget; ``dry`` only looks whether that may be.

    To be called while the store is held. Raises Refused (429 where the budget forbids it; 500).
    """
    budget = None if may_ignore_budgets(pod) else _budget_of(store, pod)
    takes = budget is not None and not takes_nothing(budget, pod)
    if budget is not None and takes:
        _check(budget)
    if dry:
        return
    key = (pod["metadata"].get("namespace", ""), pod["metadata"]["name"])
    if budget is not None and takes:
        status = status_after_eviction(budget, key[1], datetime.now(UTC))
        store.put(_BUDGETS, (key[0], budget["metadata"]["name"]), {**budget, "status": status})
    status = pod.get("status") or {}
    others = [one for one in status.get("conditions") or () if one["type"] != _CONDITION["type"]]
    conditions = [*others, {**_CONDITION, "lastTransitionTime": time_now()}]
    store.put(_PODS, key, {**pod, "status": {**status, "conditions": conditions}})
    removal.delete(_PODS, key, options)


def _budget_of(store: Store, pod: Object) -> Object | None:
    """The one budget that selects the pod; raises Refused (500) where there are more."""
    budgets = store.in_namespace(_BUDGETS, pod["metadata"].get("namespace", ""))
    found = [budget for budget in budgets if selects(budget, pod)]
    if len(found) > 1:
        text = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        raise untyped(text)
    return found[0] if found else None


def _check(budget: Object) -> None:
    """Raises Refused (429) where the budget allows no disruption, or is not looked at yet."""
    if not is_processed(budget):
        details = {"causes": _causes(still_processed(budget)), "retryAfterSeconds": RETRY_SECONDS}
        raise Refused(429, _VIOLATES, details=details)
    cause = refusal(budget)
    if cause is not None:
        raise Refused(429, _VIOLATES, details={"causes": _causes(cause)})


def _causes(message: str) -> list[Object]:
    return [{"reason": "DisruptionBudget", "message": message}]
