"""Writes the allocation of a claim and the pod that may use it, in the order of kube-scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driver.errors import DriverError
from envtest.embedded.api.statuses import Refused
from envtest.embedded.control.objects import CLAIMS, CONFLICT, is_deleted, now
from envtest.embedded.control.pod_claims import FINALIZER, is_reserved, user_of, users_of

if TYPE_CHECKING:
    from envtest.embedded.control.objects import Objects

Object = dict[str, Any]

TRIES = 5


class NotReserved(DriverError):
    """A claim could not be written; ``what`` has kube-scheduler's words."""


def reserve(objects: Objects, claim: Object, pod: Object, allocation: Object | None) -> Object:
    """Reserve the claim for the pod, with its allocation where it has none yet; the answer is what is stored.

    A conflict with another writer is tried again with what is there then. Raises NotReserved.
    """
    metadata = claim["metadata"]
    for left in reversed(range(TRIES)):
        try:
            return _written(objects, claim, pod, allocation)
        except Refused as refused:
            if refused.code != CONFLICT or not left:
                raise _not_reserved(claim, allocation, str(refused)) from refused
        found = objects.find(CLAIMS, metadata["namespace"], metadata["name"])
        if found is None or is_deleted(found):
            raise _not_reserved(claim, None, f"claim {metadata['name']} got deleted in the meantime")
        claim = found
    raise AssertionError("the last try returns or raises")


def _written(objects: Objects, claim: Object, pod: Object, allocation: Object | None) -> Object:
    status = claim.get("status", {})
    if allocation is not None:
        if status.get("allocation"):
            text = f"claim {claim['metadata']['name']} got allocated elsewhere in the meantime"
            raise _not_reserved(claim, None, text)
        finalizers = claim["metadata"].get("finalizers", [])
        if FINALIZER not in finalizers:
            metadata = {**claim["metadata"], "finalizers": [*finalizers, FINALIZER]}
            claim = objects.replace(CLAIMS, {**claim, "metadata": metadata})
        status = {**status, "allocation": {**allocation, "allocationTimestamp": now()}}
    if not is_reserved(claim, pod):
        status = {**status, "reservedFor": [*users_of(claim), user_of(pod)]}
    return objects.replace_status(CLAIMS, claim, status)


def _not_reserved(claim: Object, allocation: Object | None, text: str) -> NotReserved:
    metadata = claim["metadata"]
    doing = "add allocation and reservation" if allocation is not None else "add reservation"
    where = f"{metadata['namespace']}/{metadata['name']}"
    return NotReserved(f'running PreBind plugin "DynamicResources": {doing} to claim {where}: {text}')
