"""Serves what CustomResourceDefinitions define: at once with each write of one, and until it is gone.

Go: the controllers status, establish and finalizer of apiextensions-apiserver, and its crdHandler. There they
take a moment; here they are done before the next request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from envtest.embedded.api.resources import Catalogue, Resource
from envtest.embedded.api.store import Change, Collection, Key, Store
from envtest.embedded.custom.served_versions import resources_of

Object = dict[str, Any]

DEFINITIONS: Collection = ("apiextensions.k8s.io", "customresourcedefinitions")
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_PENDING = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"


class Definitions:
    """Follows the definitions in one store. Called while the store is held.

    ``delete`` deletes an object, or marks it while it has finalizers.
    """

    def __init__(
        self, store: Store, catalogue: Catalogue, delete: Callable[[Collection, Key, Object], Object]
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._delete = delete
        self._served: dict[str, tuple[Object, tuple[Resource, ...]]] = {}
        self._ending: dict[Collection, Key] = {}
        store.listeners.append(self._changed)

    def _changed(self, collection: Collection, change: Change) -> None:
        if collection == DEFINITIONS:
            key = ("", change.item["metadata"]["name"])
            if change.type == "DELETED":
                self._forget(key, change.item)
            else:
                self._sync(key, change.item)
        elif change.type == "DELETED" and collection in self._ending:
            self._release(self._ending[collection])

    def _sync(self, key: Key, item: Object) -> None:
        status = established(item, self._others(item))
        if status != item["status"]:
            # This write calls for another pass, with the new status.
            self._store.put(DEFINITIONS, key, {**item, "status": status})
            return
        self._serve(key, item)
        if "deletionTimestamp" not in item["metadata"] or collection_of(item) in self._ending:
            return
        if FINALIZER in item["metadata"].get("finalizers", ()):
            self._ending[collection_of(item)] = key
            self._put_condition(key, "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
            for instance, _ in self._store.items(collection_of(item)):
                # An owner takes its dependents with it.
                if self._store.get(collection_of(item), instance) is not None:
                    self._delete(collection_of(item), instance, {})
            self._release(key)

    def _others(self, item: Object) -> list[Object]:
        """The other definitions of the group."""
        return [
            one
            for _, one in self._store.items(DEFINITIONS)
            if one["spec"]["group"] == item["spec"]["group"] and one["metadata"]["uid"] != item["metadata"]["uid"]
        ]

    def _serve(self, key: Key, item: Object) -> None:
        """Serve what the definition says, unless it is served so already."""
        accepted = (condition_status(item, "Established"), item["status"]["acceptedNames"])
        wanted = {"spec": item["spec"], "accepted": accepted, "uid": item["metadata"]["uid"]}
        known, before = self._served.get(key[1], (None, ()))
        resources = before
        if known != wanted:
            resources = resources_of(item) if condition_status(item, "Established") == "True" else ()
        if "deletionTimestamp" in item["metadata"]:
            resources = tuple(map(_ending, resources))
        if resources != before:
            self._catalogue.replace(before, resources)
        self._served[key[1]] = (wanted, resources)

    def _forget(self, key: Key, item: Object) -> None:
        _, before = self._served.pop(key[1], (None, ()))
        self._catalogue.replace(before, ())
        self._ending.pop(collection_of(item), None)
        # Names that it had are free now.
        for other in self._others(item):
            self._sync(("", other["metadata"]["name"]), other)

    def _release(self, key: Key) -> None:
        """Remove the finalizer of a definition without instances."""
        item = self._store.get(DEFINITIONS, key)
        if item is None or self._store.items(collection_of(item)):
            return
        self._put_condition(key, "False", "InstanceDeletionCompleted", "removed all instances")
        item = self._store.get(DEFINITIONS, key)
        assert item is not None
        rest = [one for one in item["metadata"].get("finalizers", ()) if one != FINALIZER]
        if rest:
            self._store.put(DEFINITIONS, key, {**item, "metadata": {**item["metadata"], "finalizers": rest}})
        else:
            self._store.remove(DEFINITIONS, key)

    def _put_condition(self, key: Key, status: str, reason: str, message: str) -> None:
        item = self._store.get(DEFINITIONS, key)
        assert item is not None
        self._store.put(DEFINITIONS, key, with_condition(item, "Terminating", status, reason, message))


def marked_for_deletion(item: Object) -> Object:
    """The definition with its finalizer and the condition that its instances will be deleted."""
    finalizers = item["metadata"].get("finalizers") or []
    if FINALIZER not in finalizers:
        item = {**item, "metadata": {**item["metadata"], "finalizers": [*finalizers, FINALIZER]}}
    return with_condition(item, "Terminating", "True", "InstanceDeletionPending", _PENDING)


def collection_of(item: Object) -> Collection:
    """Where the objects of the defined kind are stored."""
    return item["spec"]["group"], item["spec"]["names"]["plural"]


def condition_status(item: Object, kind: str) -> str:
    """True, False, or empty where the definition has no such condition."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((one["status"] for one in conditions if one["type"] == kind), "")


def with_condition(item: Object, kind: str, status: str, reason: str, message: str) -> Object:
    """The definition with this condition; its time changes with its status only."""
    before = (item.get("status") or {}).get("conditions") or []
    old: Object = next((one for one in before if one["type"] == kind), {})
    since = old["lastTransitionTime"] if old.get("status") == status else _now()
    new = {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
    conditions = [new if one["type"] == kind else one for one in before]
    if not old:
        conditions.append(new)
    return {**item, "status": {**(item.get("status") or {}), "conditions": conditions}}


def established(item: Object, others: list[Object]) -> Object:
    """The status of the definition after its names were compared with those of the others of its group."""
    del others
    status = item["status"]
    if item["spec"]["names"] == status["acceptedNames"]:
        return status
    item = {**item, "status": {**status, "acceptedNames": item["spec"]["names"]}}
    item = with_condition(item, "NamesAccepted", "True", "NoConflicts", "no conflicts found")
    text = "the initial names have been accepted"
    if condition_status(item, "Established") != "True":
        item = with_condition(item, "Established", "True", "InitialNamesAccepted", text)
    return item["status"]


def _ending(resource: Resource) -> Resource:
    assert resource.custom is not None
    if resource.custom.is_ending:
        return resource
    return replace(resource, custom=replace(resource.custom, is_ending=True))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
