"""Deletes objects whose owners are gone, and ends deletions that wait for, or leave, what an object owns.

It looks at an object when the object or an owner of it changes, and at all objects once at its start.
Go: pkg/controller/garbagecollector (attemptToDeleteItem, attemptToOrphanWorker).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from envtest.embedded.api.requests import Request
from envtest.embedded.api.resources import RESOURCES, VERSION, Resource, find_resource, resource_of_kind
from envtest.embedded.api.statuses import Refused
from envtest.embedded.api.store import Change, Collection, Key
from envtest.embedded.control.change_loop import Controller
from envtest.embedded.control.objects import CONFLICT, NOT_FOUND, is_deleted, uid_of
from envtest.embedded.server import EmbeddedApiServer
from kubernetes_rules.deletion import FOREGROUND, ORPHAN

Object = dict[str, Any]

Place = tuple[Collection, Key]
"""Where an object is stored."""

NAME = "garbage collector"
_MANAGER = "kube-controller-manager"
_POLICIES = {ORPHAN: "Orphan", FOREGROUND: "Foreground"}


class EmbeddedGarbageCollector(Controller):
    """Collects garbage of all kinds."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        super().__init__(NAME, server, ())
        self._server = server
        self._pending: dict[Place, None] = {}

    def start(self) -> None:
        """Run in a thread of its own until ``stop``."""
        store = self._server.store
        with store.changed:
            store.listeners.append(self._changed)
            for resource in RESOURCES:
                self._pending |= {
                    (resource.collection, key): None for key, _ in store.items(resource.collection)
                }
        super().start()

    def stop(self) -> None:
        """End the thread."""
        with self._server.store.changed:
            self._server.store.listeners.remove(self._changed)
        super().stop()

    def _changed(self, collection: Collection, change: Change) -> None:
        """Note what a change, whose writer holds the store, asks to be looked at."""
        metadata = change.item["metadata"]
        namespace, owners = metadata.get("namespace", ""), metadata.get("ownerReferences") or []
        before = [] if change.previous is None else change.previous["metadata"].get("ownerReferences") or []
        places: list[Place] = []
        if change.type == "DELETED":
            # An owner may wait for this object, before it goes itself.
            places = [*self._server.store.dependents(metadata["uid"]), *_places(owners, namespace)]
        elif owners or (is_deleted(change.item) and _POLICIES.keys() & set(metadata.get("finalizers") or ())):
            places = [(collection, (namespace, metadata["name"]))]
        if before != owners:
            # An owner may have waited for this object, which perhaps no longer blocks its deletion.
            places += _places(before, namespace)
        if places:
            self._pending |= dict.fromkeys(places)
            self._loop.ask()

    def sync(self) -> float | None:
        """Look at all objects that may be garbage; one that changes meanwhile is looked at again."""
        while True:
            with self._server.store.changed:
                place = next(iter(self._pending), None)
                if place is None:
                    return None
                del self._pending[place]
            try:
                self._look_at(place)
            except Refused as refused:
                with self._server.store.changed:
                    self._pending[place] = None
                # Somebody else has written or deleted one of the objects: what they are now decides.
                if refused.code not in (NOT_FOUND, CONFLICT):
                    raise

    def _look_at(self, place: Place) -> None:
        item = self._server.store.get(*place)
        if item is None:
            return
        finalizers = item["metadata"].get("finalizers") or ()
        if is_deleted(item) and ORPHAN in finalizers:
            self._orphan(place, item)
        elif is_deleted(item) and FOREGROUND in finalizers:
            self._end_foreground(place, item)
        elif not is_deleted(item):
            self._collect(place, item)

    def _orphan(self, place: Place, owner: Object) -> None:
        """Remove the owner from what it owns, then the finalizer that asked for it."""
        for dependent in self._dependents(owner):
            item = self._server.store.get(*dependent)
            if item is not None:
                self._write_owners(
                    dependent, item, [one for one in _owners(item) if one["uid"] != uid_of(owner)]
                )
        self._remove_finalizer(place, owner, ORPHAN)

    def _end_foreground(self, place: Place, owner: Object) -> None:
        """Let the owner go if nothing that it owns blocks its deletion; else delete what blocks it."""
        dependents = self._dependents(owner)
        items = [(one, self._server.store.get(*one)) for one in dependents]
        blocking = [one for one, item in items if item is not None and _blocks(item, uid_of(owner))]
        if not blocking:
            self._remove_finalizer(place, owner, FOREGROUND)
        with self._server.store.changed:
            self._pending |= {one: None for one, item in items if item is not None and not is_deleted(item)}

    def _collect(self, place: Place, item: Object) -> None:
        """Delete an object all of whose owners are gone or wait for it, and forget these owners otherwise."""
        solid, dangling, waiting = self._classified(place, item)
        if not dangling and not waiting:
            return
        if solid:
            self._write_owners(place, item, solid)
            return
        metadata = item["metadata"]
        finalizers = metadata.get("finalizers") or ()
        policy = (
            "Orphan" if ORPHAN in finalizers else "Foreground" if FOREGROUND in finalizers else "Background"
        )
        if waiting and self._dependents(item):
            policy = "Foreground"
        self._delete(place, item, policy)

    def _classified(self, place: Place, item: Object) -> tuple[list[Object], list[Object], list[Object]]:
        """The references to owners that stay, to those that are gone, and to those that wait for it."""
        solid, dangling, waiting = [], [], []
        for reference in _owners(item):
            resource = resource_of_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
            namespace = place[1][0]
            # Nobody can look up an owner of an unknown kind, or one in no known namespace.
            if resource is None or (resource.namespaced and not namespace):
                solid.append(reference)
                continue
            key = (namespace if resource.namespaced else "", reference.get("name", ""))
            owner = self._server.store.get(resource.collection, key)
            if owner is None or uid_of(owner) != reference["uid"]:
                dangling.append(reference)
            elif _is_in_foreground(owner):
                waiting.append(reference)
            else:
                solid.append(reference)
        return solid, dangling, waiting

    def _dependents(self, owner: Object) -> list[Place]:
        return self._server.store.dependents(uid_of(owner))

    def _remove_finalizer(self, place: Place, item: Object, name: str) -> None:
        finalizers = [one for one in item["metadata"]["finalizers"] if one != name]
        self._write(place, {**item, "metadata": {**item["metadata"], "finalizers": finalizers}})

    def _write_owners(self, place: Place, item: Object, owners: list[Object]) -> Object:
        return self._write(place, {**item, "metadata": {**item["metadata"], "ownerReferences": owners}})

    def _write(self, place: Place, item: Object) -> Object:
        return self._server.verbs.update(self._request("update", place), _resource(place), item, [])

    def _delete(self, place: Place, item: Object, policy: str) -> None:
        options = {"propagationPolicy": policy, "preconditions": {"uid": uid_of(item)}}
        self._server.verbs.delete(self._request("delete", place), _resource(place), options, [])

    def _request(self, verb: Any, place: Place) -> Request:
        return Request(verb, "", place[0][0], VERSION, place[0][1], *place[1], client=_MANAGER)


def _resource(place: Place) -> Resource:
    found = find_resource(place[0][0], VERSION, place[0][1])
    assert found is not None
    return found


def _owners(item: Object) -> list[Object]:
    return item["metadata"].get("ownerReferences") or []


def _blocks(item: Object, owner_uid: str) -> bool:
    return any(one["uid"] == owner_uid and one.get("blockOwnerDeletion") for one in _owners(item))


def _is_in_foreground(item: Object | None) -> bool:
    """Whether the object waits for what it owns before it goes."""
    return item is not None and is_deleted(item) and FOREGROUND in (item["metadata"].get("finalizers") or ())


def _places(references: Iterable[Object], namespace: str) -> list[Place]:
    """Where the owners of an object are stored."""
    found = []
    for reference in references:
        resource = resource_of_kind(reference.get("apiVersion", ""), reference.get("kind", ""))
        if resource is not None:
            key = (namespace if resource.namespaced else "", reference.get("name", ""))
            found.append((resource.collection, key))
    return found
