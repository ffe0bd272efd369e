"""Deletes objects, with finalizers, graces of pods, namespaces and owned objects, and evicts pods.

An eviction is refused while a PodDisruptionBudget of the pod forbids it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from envtest.embedded.api.admission import NAMESPACES
from envtest.embedded.api.defaults import now
from envtest.embedded.api.definition_status import DEFINITIONS, marked_for_deletion
from envtest.embedded.api.quota import Quotas
from envtest.embedded.api.resources import Catalogue
from envtest.embedded.api.statuses import Refused, plain_go_error
from envtest.embedded.api.store import Collection, Key, Store
from kubernetes_rules import disruption_budgets as budget_rules

Object = dict[str, Any]

_PODS = ("", "pods")
_JOBS = ("batch", "jobs")
_ENDED = ("Succeeded", "Failed")

_BUDGETS = ("policy", "poddisruptionbudgets")
_VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."
_CONDITION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


class Removal:
    """Deletes from one store. To be called while the store is held."""

    def __init__(self, store: Store, catalogue: Catalogue, quotas: Quotas) -> None:
        self._store = store
        self._catalogue = catalogue
        self._quotas = quotas

    def delete(self, collection: Collection, key: Key, options: Object) -> Object:
        """Delete the object, or mark it while finalizers or its kubelet still need it.

        ``options`` are the DeleteOptions. Returns the object in its last state.
        """
        stored = self._store.get(collection, key)
        assert stored is not None
        if collection == NAMESPACES and (stored.get("spec") or {}).get("finalizers"):
            return self._end_namespace(key, stored)
        if collection == DEFINITIONS and "deletionTimestamp" not in stored["metadata"]:
            # Its controller deletes the instances, and removes the finalizer then.
            return self._store.put(collection, key, marked_for_deletion(stored))
        orphans = _orphans(collection, options)
        grace_seconds = self._grace_seconds(collection, stored, options)
        metadata = stored["metadata"]
        if not metadata.get("finalizers") and not grace_seconds:
            return self.remove(collection, key, orphans=orphans)
        # A grace that already runs can only be made shorter.
        if "deletionTimestamp" in metadata and not grace_seconds < metadata.get(
            "deletionGracePeriodSeconds", 0
        ):
            return stored
        moment = (datetime.now(UTC) + timedelta(seconds=grace_seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        marked = {**metadata, "deletionTimestamp": moment, "deletionGracePeriodSeconds": grace_seconds}
        # To be deleted is a change of what is wanted (rest.BeforeDelete).
        if "generation" in metadata and "deletionTimestamp" not in metadata:
            marked["generation"] = metadata["generation"] + 1
        return self._store.put(collection, key, {**stored, "metadata": marked})

    def collect_if_ownerless(self, collection: Collection, key: Key) -> None:
        """Delete an object whose owners are all gone, as the garbage collector does with absent owners.

        A controller may create it after its owner was deleted: it acts on what it has read before.
        """
        item = self._store.get(collection, key)
        references = item["metadata"].get("ownerReferences") if item else None
        if references and not any(self._may_exist(reference, key[0]) for reference in references):
            self.delete(collection, key, {})

    def _may_exist(self, reference: Object, namespace: str) -> bool:
        """Whether the owner exists, or is of a kind that is not served: nobody can look that one up."""
        resource = self._catalogue.of_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
        if resource is None:
            return True
        owner_key = (namespace if resource.namespaced else "", reference.get("name", ""))
        owner = self._store.get(resource.collection, owner_key)
        return owner is not None and owner["metadata"]["uid"] == reference.get("uid")

    def remove(self, collection: Collection, key: Key, *, orphans: bool = False) -> Object:
        """Remove the object for good, then the objects that have no other owner."""
        last = self._store.remove(collection, key)
        self._collect(last["metadata"]["uid"], orphans=orphans)
        if key[0]:
            self._quotas.refresh(key[0])
        return last

    def _end_namespace(self, key: Key, stored: Object) -> Object:
        """Mark a namespace as deleted: the namespace controller empties it and removes its finalizer then."""
        metadata = stored["metadata"]
        if "deletionTimestamp" in metadata:
            return stored
        # A namespace has no grace: only its finalizer keeps it.
        marked = {**metadata, "deletionTimestamp": now()}
        status = {**(stored.get("status") or {}), "phase": "Terminating"}
        return self._store.put(NAMESPACES, key, {**stored, "metadata": marked, "status": status})

    def _grace_seconds(self, collection: Collection, stored: Object, options: Object) -> int:
        """How many seconds the kubelet has to end a pod; 0 for objects that are removed at once."""
        if collection != _PODS:
            return 0
        spec, status = stored.get("spec") or {}, stored.get("status") or {}
        # No kubelet has anything to end (CheckGracefulDelete of pods).
        if not spec.get("nodeName") or status.get("phase") in _ENDED:
            return 0
        wanted = options.get("gracePeriodSeconds")
        return int(spec.get("terminationGracePeriodSeconds", 30) if wanted is None else wanted)

    def _collect(self, uid: str, *, orphans: bool) -> None:
        """Remove the reference to a deleted owner from its objects; delete those without another owner."""
        # At once; in a real cluster the garbage collector does it a moment later.
        for collection, key in self._store.dependents(uid):
            item = self._store.get(collection, key)
            if item is None:
                continue
            rest = [one for one in item["metadata"]["ownerReferences"] if one.get("uid") != uid]
            if rest or orphans:
                kept = {**item["metadata"], "ownerReferences": rest}
                if not rest:
                    del kept["ownerReferences"]
                self._store.put(collection, key, {**item, "metadata": kept})
            else:
                self.delete(collection, key, {})


def _orphans(collection: Collection, options: Object) -> bool:
    """Whether the owned objects stay: for Jobs they do, unless the request says otherwise."""
    if options.get("orphanDependents") is not None:
        return bool(options["orphanDependents"])
    # batch/v1 orphans by default, for the sake of old clients (DefaultGarbageCollectionPolicy of Jobs).
    return bool(options.get("propagationPolicy", "Orphan" if collection == _JOBS else "") == "Orphan")


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
