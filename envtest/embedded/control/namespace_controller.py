"""Gives each namespace its service account ``default``, and empties namespaces that are deleted, pods first.

Pods have their grace. An object with finalizers stays until they are removed; meanwhile the conditions of the
namespace say what is left. Go: pkg/controller/namespace/deletion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from envtest.embedded.api.defaults import now
from envtest.embedded.api.resources import RESOURCES
from envtest.embedded.control import kinds
from envtest.embedded.control.change_loop import AGAIN_SECONDS, Controller, ObjectBackOff
from envtest.embedded.control.objects import is_deleted
from envtest.embedded.server import EmbeddedApiServer

Object = dict[str, Any]

NAME = "namespace controller"
_FINALIZER = "kubernetes"
_CONTENTS = tuple(
    kinds.Kind(one.group, one.plural)
    for one in RESOURCES
    if one.namespaced and one.collection[0] == one.group
)
"""The kinds of objects in a namespace; events, which have two API groups, once."""

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
    """Reconciles all deleted namespaces after every change of a namespace or of an object in one."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        super().__init__(NAME, server, (kinds.NAMESPACES, *_CONTENTS))
        self._back_off = ObjectBackOff(NAME)

    def sync(self) -> float | None:
        """Empty deleted namespaces, and release empty ones; returns in how many seconds one is due again."""
        ending = [one for one in self._objects.list(kinds.NAMESPACES) if is_deleted(one)]
        return self._back_off.for_each(ending, self._empty)

    def _empty(self, namespace: Object) -> float | None:
        # Only finalizers of others are left: they remove them.
        if _FINALIZER not in (namespace.get("spec") or {}).get("finalizers", ()):
            return None
        name = namespace["metadata"]["name"]
        problems: dict[str, tuple[str, str]] = {}
        left = len(self._delete_all(kinds.PODS, name))
        if not left:
            # Nothing else before the pods are gone: they may still use it while they end.
            found = {one: self._delete_all(one, name) for one in _CONTENTS if one != kinds.PODS}
            left, problems = sum(map(len, found.values())), remaining(found)
        namespace = self._with_conditions(namespace, problems)
        if not left:
            # With the last one the API server removes the namespace itself.
            finalizers = [one for one in namespace["spec"]["finalizers"] if one != _FINALIZER]
            spec = {**namespace["spec"], "finalizers": finalizers}
            self._objects.replace(kinds.NAMESPACES, {**namespace, "spec": spec}, "finalize")
        return AGAIN_SECONDS if left else None

    def _delete_all(self, resource: kinds.Kind, namespace: str) -> Sequence[Object]:
        """Delete all objects of a kind in the namespace; returns those that are still there."""
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
        return self._objects.replace_status(kinds.NAMESPACES, namespace, {**status, "conditions": conditions})


def remaining(found: Mapping[kinds.Kind, Iterable[Object]]) -> dict[str, tuple[str, str]]:
    """Reason and message of the conditions about objects that are left, and about their finalizers."""
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
    """The conditions of a deleted namespace; the time of each changes with its status only."""
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
    """Reconciles all namespaces after every change of one, or of a service account."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        super().__init__(_SERVICE_ACCOUNT_CONTROLLER, server, (kinds.NAMESPACES, kinds.SERVICE_ACCOUNTS))
        self._back_off = ObjectBackOff(_SERVICE_ACCOUNT_CONTROLLER)

    def sync(self) -> float | None:
        """Create the missing accounts; returns in how many seconds one that failed is due again."""
        return self._back_off.for_each(self._objects.list(kinds.NAMESPACES), self._sync_namespace)

    def _sync_namespace(self, namespace: dict[str, Any]) -> None:
        name = namespace["metadata"]["name"]
        known = self._objects.find(kinds.SERVICE_ACCOUNTS, name, "default")
        if known is None and not is_deleted(namespace):
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            self._objects.create(kinds.SERVICE_ACCOUNTS, name, account)
