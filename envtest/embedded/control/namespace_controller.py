"""Gives each namespace its service account ``default``, and empties namespaces that are deleted, pods first.

Pods have their grace. An object with finalizers stays until they are removed; the namespace's
conditions say what it waits for. Go: pkg/controller/namespace/deletion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from envtest.embedded.api.defaults import now
from envtest.embedded.api.resources import RESOURCES
from envtest.embedded.api.server import EmbeddedApiServer
from envtest.embedded.control.change_loop import Controller, Turns
from envtest.embedded.control.objects import (
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    Resource,
    is_deleted,
)

Object = dict[str, Any]

NAME = "namespace controller"
_FINALIZER = "kubernetes"
_CONTENTS = tuple(
    Resource(one.group, one.plural) for one in RESOURCES if one.namespaced and one.collection[0] == one.group
)
"""What can be in a namespace; events, which have two names, once."""

_FINE = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": (
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
}
"""Reason and message of each condition while there is nothing wrong."""

_SERVICE_ACCOUNT_CONTROLLER = "service account controller"


class EmbeddedNamespaceController(Controller):
    """Looks at all namespaces that end again after every change of what can be in one."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        super().__init__(NAME, server, (NAMESPACES, *_CONTENTS))
        self._turns = Turns(NAME)

    def sync(self) -> float | None:
        """Empty deleted namespaces, and release empty ones; returns in how many seconds one is due again."""
        ending = [one for one in self._objects.list(NAMESPACES) if is_deleted(one)]
        return self._turns.give(ending, self._empty)

    def _empty(self, namespace: Object) -> None:
        if _FINALIZER not in (namespace.get("spec") or {}).get("finalizers", ()):
            return  # it waits for others
        name = namespace["metadata"]["name"]
        problems: dict[str, tuple[str, str]] = {}
        left = len(self._delete_all(PODS, name))
        if not left:
            found = {one: self._delete_all(one, name) for one in _CONTENTS if one != PODS}
            left, problems = sum(map(len, found.values())), remaining(found)
        namespace = self._with_conditions(namespace, problems)
        if not left:
            finalizers = [one for one in namespace["spec"]["finalizers"] if one != _FINALIZER]
            spec = {**namespace["spec"], "finalizers": finalizers}
            self._objects.replace(NAMESPACES, {**namespace, "spec": spec}, "finalize")

    def _delete_all(self, resource: Resource, namespace: str) -> Sequence[Object]:
        """Delete all objects of a kind that are in the namespace; those that are left then."""
        for item in self._objects.list_in(resource, namespace):
            if not is_deleted(item):
                self._objects.delete(resource, item)
        return self._objects.list_in(resource, namespace)

    def _with_conditions(self, namespace: Object, problems: Mapping[str, tuple[str, str]]) -> Object:
        """The namespace with its conditions in order."""
        status = namespace.get("status") or {}
        conditions = conditioned(status.get("conditions") or (), problems)
        if conditions == status.get("conditions"):
            return namespace
        return self._objects.replace_status(NAMESPACES, namespace, {**status, "conditions": conditions})


def remaining(found: Mapping[Resource, Iterable[Object]]) -> dict[str, tuple[str, str]]:
    """Reason and message of the conditions that say what is left, and for whose finalizers it waits."""
    counts = {f"{one.name}.{one.group}": len(list(items)) for one, items in found.items()}
    finalizers = Counter(
        finalizer
        for items in found.values()
        for item in items
        for finalizer in item["metadata"].get("finalizers") or ()
    )
    problems = {}
    kept = [f"{name} has {count} resource instances" for name, count in sorted(counts.items()) if count]
    if kept:
        text = f"Some resources are remaining: {', '.join(kept)}"
        problems["NamespaceContentRemaining"] = ("SomeResourcesRemain", text)
    if finalizers:
        waits = [f"{name} in {count} resource instances" for name, count in sorted(finalizers.items())]
        text = f"Some content in the namespace has finalizers remaining: {', '.join(waits)}"
        problems["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", text)
    return problems


def conditioned(before: Iterable[Object], problems: Mapping[str, tuple[str, str]]) -> list[Object]:
    """The conditions of a namespace that ends; the time of one changes with its status alone."""
    known = {one["type"]: one for one in before}
    found = []
    for kind, fine in _FINE.items():
        status = "True" if kind in problems else "False"
        reason, message = problems.get(kind, fine)
        old = known.get(kind, {})
        since = old["lastTransitionTime"] if old.get("status") == status else now()
        new = {"type": kind, "status": status, "reason": reason, "message": message}
        found.append({**new, "lastTransitionTime": since})
    return found


class EmbeddedServiceAccountController(Controller):
    """Looks at all namespaces again after every change of one."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        super().__init__(_SERVICE_ACCOUNT_CONTROLLER, server, (NAMESPACES, SERVICE_ACCOUNTS))
        self._turns = Turns(_SERVICE_ACCOUNT_CONTROLLER)

    def sync(self) -> float | None:
        """Create the accounts that are missing; in how many seconds one that failed is due again."""
        return self._turns.give(self._objects.list(NAMESPACES), self._sync_namespace)

    def _sync_namespace(self, namespace: dict[str, Any]) -> None:
        name = namespace["metadata"]["name"]
        known = self._objects.find(SERVICE_ACCOUNTS, name, "default")
        if known is None and not is_deleted(namespace):
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            self._objects.create(SERVICE_ACCOUNTS, name, account)
