"""What a write of a CustomResourceDefinition does to its status, its finalizers and its conditions.

Go: strategy.go and etcd.go in apiextensions-apiserver/pkg/registry/customresourcedefinition.
"""

from __future__ import annotations

from typing import Any

from envtest.embedded.api.defaults import now
from envtest.embedded.api.store import Collection

Object = dict[str, Any]

DEFINITIONS: Collection = ("apiextensions.k8s.io", "customresourcedefinitions")
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_PENDING = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"


def with_stored_version(item: Object) -> Object:
    """The definition, whose storage version is among those in which objects have been stored."""
    versions = list(item["status"].get("storedVersions") or ())
    storage = (one["name"] for one in item["spec"].get("versions") or () if one.get("storage"))
    versions += [name for name in list(storage)[:1] if name not in versions]
    return {**item, "status": {**item["status"], "storedVersions": versions}}


def marked_for_deletion(item: Object) -> Object:
    """The definition with a time of deletion, its finalizer and the condition that its instances go."""
    item = {**item, "metadata": {**item["metadata"], "deletionTimestamp": now()}}
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
    since = old["lastTransitionTime"] if old.get("status") == status else now()
    new = {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
    conditions = [new if one["type"] == kind else one for one in before]
    if not old:
        conditions.append(new)
    return {**item, "status": {**(item.get("status") or {}), "conditions": conditions}}
