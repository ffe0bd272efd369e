"""Deletes objects, with finalizers, graces of pods and namespaces, and evicts pods.

An eviction is refused while a PodDisruptionBudget of the pod forbids it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from envtest.embedded.api.admission import NAMESPACES, Quotas
from envtest.embedded.api.defaults import now
from envtest.embedded.api.statuses import Refused, plain_go_error
from envtest.embedded.api.store import Collection, Key, Store
from kubernetes_rules import disruption_budgets as budget_rules
from kubernetes_rules.deletion import Deletion, Policy, deletion

Object = dict[str, Any]

_PODS = ("", "pods")
_POLICIES: dict[Collection, Policy] = {
    # batch/v1 orphans by default, for the sake of old clients.
    ("batch", "jobs"): "Orphan",
    ("", "events"): "unsupported",
}

_BUDGETS = ("policy", "poddisruptionbudgets")
_VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."
_CONDITION = {
    "type": "DisruptionTarget",
    "lastProbeTime": None,
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


class Removal:
    """Deletes from one store. To be called while the store is held."""

    def __init__(self, store: Store, quotas: Quotas) -> None:
        self._store = store
        self._quotas = quotas

    def delete(self, collection: Collection, key: Key, options: Object, *, dry: bool = False) -> Deletion:
        """Delete the object, or mark it while finalizers or its kubelet still need it.

        ``options`` are the DeleteOptions. Returns the object in its last state, and whether it is gone;
        ``dry`` changes nothing.
        """
        stored = self._store.get(collection, key)
        assert stored is not None
        if collection == NAMESPACES and (stored.get("spec") or {}).get("finalizers"):
            return self._end_namespace(key, stored, dry=dry)
        found = deletion(
            stored,
            options,
            is_pod=collection == _PODS,
            policy=_POLICIES.get(collection, "Background"),
            now=datetime.now(UTC),
        )
        if dry:
            return found
        item = found.item
        if found.is_changed:
            item = self._store.put(collection, key, found.item)
        if found.is_over:
            item = self.remove(collection, key)
        return replace(found, item=item)

    def remove(self, collection: Collection, key: Key) -> Object:
        """Remove the object for good."""
        last = self._store.remove(collection, key)
        if key[0]:
            self._quotas.refresh(key[0])
        return last

    def _end_namespace(self, key: Key, stored: Object, *, dry: bool) -> Deletion:
        """Mark a namespace as deleted: the namespace controller empties it and removes its finalizer then."""
        metadata = stored["metadata"]
        if "deletionTimestamp" in metadata:
            return Deletion(stored, is_changed=False, is_over=False)
        # A namespace has no grace: only its finalizer keeps it.
        marked = {**metadata, "deletionTimestamp": now()}
        status = {**(stored.get("status") or {}), "phase": "Terminating"}
        item = {**stored, "metadata": marked, "status": status}
        return Deletion(
            item if dry else self._store.put(NAMESPACES, key, item), is_changed=True, is_over=False
        )


def evict(store: Store, removal: Removal, pod: Object, options: Object, *, dry: bool) -> None:
    """Delete the pod as ``options`` say, and charge its budget; ``dry`` only checks whether it is allowed.

    To be called while the store is held. Raises Refused (429 where the budget forbids it; 500).
    """
    budget = None if budget_rules.may_ignore_budgets(pod) else _budget_of(store, pod)
    takes = budget is not None and not budget_rules.may_evict_unready(budget, pod)
    if budget is not None and takes:
        _check(budget)
    if dry:
        return
    key = (pod["metadata"].get("namespace", ""), pod["metadata"]["name"])
    if budget is not None and takes:
        # The budget is charged first, and notes the pod: two evictions at once cannot both use what is left.
        status = budget_rules.status_after_eviction(budget, key[1], datetime.now(UTC))
        store.put(_BUDGETS, (key[0], budget["metadata"]["name"]), {**budget, "status": status})
    status = pod.get("status") or {}
    others = [one for one in status.get("conditions") or () if one["type"] != _CONDITION["type"]]
    conditions = [*others, {**_CONDITION, "lastTransitionTime": now()}]
    store.put(_PODS, key, {**pod, "status": {**status, "conditions": conditions}})
    removal.delete(_PODS, key, options)


def _budget_of(store: Store, pod: Object) -> Object | None:
    """The one budget that selects the pod; raises Refused (500) where there are more."""
    budgets = store.in_namespace(_BUDGETS, pod["metadata"].get("namespace", ""))
    found = [budget for budget in budgets if budget_rules.budget_selects(budget, pod)]
    if len(found) > 1:
        text = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        raise plain_go_error(text)
    return found[0] if found else None


def _check(budget: Object) -> None:
    """Raises Refused (429) where the budget allows no disruption, or its status is older than its spec."""
    if not budget_rules.is_processed(budget):
        details = {
            "causes": _causes(budget_rules.unprocessed_cause(budget)),
            "retryAfterSeconds": budget_rules.RETRY_SECONDS,
        }
        raise Refused(429, _VIOLATES, details=details)
    cause = budget_rules.refusal(budget)
    if cause is not None:
        raise Refused(429, _VIOLATES, details={"causes": _causes(cause)})


def _causes(message: str) -> list[Object]:
    return [{"reason": "DisruptionBudget", "message": message}]
