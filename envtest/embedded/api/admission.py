"""Admits writes: the namespace has to be there, and device requests with admin access need its label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envtest.embedded.api.statuses import Refused, details_of, invalid
from kubernetes_rules.validation.errors import FieldError, forbidden

if TYPE_CHECKING:
    from envtest.embedded.api.resources import Resource
    from envtest.embedded.api.store import Store

Object = dict[str, Any]

NAMESPACES = ("", "namespaces")
_IMMORTAL = ("default", "kube-public", "kube-system")
_ADMIN_LABEL = "resource.kubernetes.io/admin-access"
_ADMIN_TEXT = f"admin access to devices requires the `{_ADMIN_LABEL}: true` label on the containing namespace"


def admit_namespace(store: Store, resource: Resource, namespace: str, name: str) -> None:
    """Raises Refused when nothing can be created in the namespace: 404 if it is not there, 403 if it ends."""
    found = store.get(NAMESPACES, ("", namespace))
    if found is None:
        details = details_of("", "namespaces", namespace)
        raise Refused(404, f'namespaces "{namespace}" not found', details=details)
    if "deletionTimestamp" in found["metadata"]:
        text = (
            f'{resource.qualified_name} "{name}" is forbidden: unable to create new content in namespace '
            f"{namespace} because it is being terminated"
        )
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        details = {**details_of(resource.group, resource.plural, name), "causes": [cause]}
        raise Refused(403, text, details=details)


def admit_delete(resource: Resource, name: str) -> None:
    """Raises Refused (403) for the namespaces that no cluster can be without."""
    if resource.collection == NAMESPACES and name in _IMMORTAL:
        text = f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        raise Refused(403, text, details=details_of("", "namespaces", name))


def admit_admin_access(store: Store, item: Object, old: Object | None) -> None:
    """Raises Refused (422) when a claim, a template or an allocation has admin access that is not allowed."""
    error = _admin_error(item, old)
    if error is None:
        return
    namespace = store.get(NAMESPACES, ("", item["metadata"].get("namespace", "")))
    labels = {} if namespace is None else namespace["metadata"].get("labels") or {}
    if labels.get(_ADMIN_LABEL) != "true":
        raise invalid("resource.k8s.io", item["kind"], item["metadata"].get("name", ""), [error])


def _admin_error(item: Object, old: Object | None) -> FieldError | None:
    """What would be wrong without the label; None where no admin access is new."""
    spec = item.get("spec") or {}
    if item.get("kind") == "ResourceClaimTemplate":
        spec = spec.get("spec") or {}
    elif item.get("kind") != "ResourceClaim":
        return None
    if old is None:
        for index, request in enumerate((spec.get("devices") or {}).get("requests") or []):
            if (request.get("exactly") or {}).get("adminAccess") is True:
                return forbidden(f"spec.devices.requests[{index}].adminAccess", _ADMIN_TEXT)
        return None
    if any(result.get("adminAccess") for result in _results(old)):
        return None
    for index, result in enumerate(_results(item)):
        if result.get("adminAccess"):
            path = f"status.allocation.devices.results[{index}].adminAccess"
            return forbidden(path, _ADMIN_TEXT)
    return None


def _results(claim: Object) -> list[Object]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []
