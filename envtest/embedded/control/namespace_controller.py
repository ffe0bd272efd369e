"""Gives each namespace its service account ``default``, and empties namespaces that are deleted, pods first.

Pods have their grace. An object with finalizers stays until they are removed. Conditions of the namespace
that would say what is left are not written. Go: pkg/controller/namespace/deletion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envtest.embedded.api.resources import RESOURCES
from envtest.embedded.control import kinds
from envtest.embedded.control.change_loop import AGAIN_SECONDS, Controller, ObjectBackOff
from envtest.embedded.control.objects import is_deleted
from envtest.embedded.server import EmbeddedApiServer

Object = dict[str, Any]

NAME = "namespace controller"
_FINALIZER = "kubernetes"
_CONTENTS = tuple(kinds.Kind(one.group, one.plural) for one in RESOURCES if one.namespaced)
"""The kinds of objects in a namespace."""

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
        left = len(self._delete_all(kinds.PODS, name))
        if not left:
            # Nothing else before the pods are gone: they may still use it while they end.
            left = sum(len(self._delete_all(one, name)) for one in _CONTENTS if one != kinds.PODS)
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
