"""Serves what CustomResourceDefinitions define: at once with each write of one, and until it is gone.

Go: the controllers status, establish and finalizer of apiextensions-apiserver, and its crdHandler. There they
take a moment; here they are done before the next request.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from envtest.embedded.api.definition_status import (
    DEFINITIONS,
    FINALIZER,
    collection_of,
    condition_status,
    with_condition,
)
from envtest.embedded.api.removal import Removal
from envtest.embedded.api.resources import Catalogue, Resource
from envtest.embedded.api.store import Change, Collection, Key, Store
from envtest.embedded.custom.served_versions import resources_of

Object = dict[str, Any]


class Definitions:
    """Follows the definitions in one store. Called while the store is held."""

    def __init__(self, store: Store, catalogue: Catalogue, removal: Removal) -> None:
        self._store = store
        self._catalogue = catalogue
        self._removal = removal
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
        status = established(item, self._of_group(item))
        if status != item["status"]:
            # This write calls for another pass, with the new status.
            self._store.put(DEFINITIONS, key, {**item, "status": status})
            self._reconsider(item)
            return
        self._serve(key, item)
        if "deletionTimestamp" not in item["metadata"] or collection_of(item) in self._ending:
            return
        if FINALIZER in item["metadata"].get("finalizers", ()):
            self._ending[collection_of(item)] = key
            text = "CustomResource deletion is in progress"
            self._put_condition(key, "True", "InstanceDeletionInProgress", text)
            for instance, _ in self._store.items(collection_of(item)):
                # An owner takes its dependents with it.
                if self._store.get(collection_of(item), instance) is not None:
                    self._removal.delete(collection_of(item), instance, {})
            self._release(key)

    def _of_group(self, item: Object) -> list[Object]:
        """All definitions of the group of this one."""
        group = item["spec"]["group"]
        return [one for _, one in self._store.items(DEFINITIONS) if one["spec"]["group"] == group]

    def _reconsider(self, item: Object) -> None:
        """Compare the names of the other definitions of the group: this one may have freed some."""
        for name in [one["metadata"]["name"] for one in self._of_group(item)]:
            # Read now: the one before may have changed it.
            other = self._store.get(DEFINITIONS, ("", name))
            if other is not None and name != item["metadata"]["name"]:
                self._sync(("", name), other)

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
            self._replace(before, resources)
        self._served[key[1]] = (wanted, resources)

    def _replace(self, before: tuple[Resource, ...], resources: tuple[Resource, ...]) -> None:
        self._catalogue.replace(before, resources)
        # Watches of what is served no more, or otherwise, have to end.
        self._store.notify()

    def _forget(self, key: Key, item: Object) -> None:
        _, before = self._served.pop(key[1], (None, ()))
        self._replace(before, ())
        self._ending.pop(collection_of(item), None)
        self._reconsider(item)

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
            self._removal.remove(DEFINITIONS, key)

    def _put_condition(self, key: Key, status: str, reason: str, message: str) -> None:
        item = self._store.get(DEFINITIONS, key)
        assert item is not None
        self._store.put(DEFINITIONS, key, with_condition(item, "Terminating", status, reason, message))


def established(item: Object, group: list[Object]) -> Object:
    """The status of a definition after its names were compared with those that its group has accepted.

    Go: calculateNamesAndConditions in pkg/controller/status, and pkg/controller/establish.
    """
    status: Object = item["status"]
    wanted, accepted = item["spec"]["names"], dict(status["acceptedNames"])
    if wanted == accepted:
        return status
    taken = [one["status"]["acceptedNames"] for one in group]
    resources = {name for one in taken for name in (one["plural"], one.get("singular"), *_short_names(one))}
    kinds = {name for one in taken for name in (one["kind"], one.get("listKind"))}
    reason, message = "", ""
    for name in ("plural", "singular", "shortNames", "kind", "listKind"):
        used = kinds if name in ("kind", "listKind") else resources
        clashes = [one for one in _clashing(name, wanted, accepted) if one in used]
        reason, message = _taken(name, clashes, wanted, accepted) or (reason, message)
    _take("categories", wanted, accepted)
    item = {**item, "status": {**status, "acceptedNames": accepted}}
    if reason:
        item = with_condition(item, "NamesAccepted", "False", reason, message)
        if not condition_status(item, "Established"):
            item = with_condition(item, "Established", "False", "NotAccepted", "not all names are accepted")
    else:
        item = with_condition(item, "NamesAccepted", "True", "NoConflicts", "no conflicts found")
        if condition_status(item, "Established") != "True":
            text = "the initial names have been accepted"
            item = with_condition(item, "Established", "True", "InitialNamesAccepted", text)
    found: Object = item["status"]
    return found


def _short_names(names: Object) -> list[str]:
    return names.get("shortNames") or []


def _clashing(name: str, wanted: Object, accepted: Object) -> list[str]:
    """The wanted names of one sort that are not accepted yet."""
    if name == "shortNames":
        return [one for one in _short_names(wanted) if one not in _short_names(accepted)]
    return [wanted.get(name, "")] if wanted.get(name) != accepted.get(name) else []


def _taken(name: str, clashes: list[str], wanted: Object, accepted: Object) -> tuple[str, str] | None:
    """Reason and message where others have names already; else the names are accepted."""
    if not clashes:
        _take(name, wanted, accepted)
        return None
    texts = [f'"{one}" is already in use' for one in clashes]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return f"{name[0].upper()}{name[1:]}Conflict", text


def _take(name: str, wanted: Object, accepted: Object) -> None:
    if name in wanted:
        accepted[name] = wanted[name]
    else:
        accepted.pop(name, None)


def _ending(resource: Resource) -> Resource:
    assert resource.custom is not None
    if resource.custom.is_ending:
        return resource
    return replace(resource, custom=replace(resource.custom, is_ending=True))
