"""Decides what a DELETE does to an object: it goes at once, or it is marked and waits for its finalizers.

Go: BeforeDelete in k8s.io/apiserver/pkg/registry/rest, and Delete, updateForGracefulDeletionAndFinalizers and
deletionFinalizersForGarbageCollection in k8s.io/apiserver/pkg/registry/generic/registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

Json = Mapping[str, Any]
Object = dict[str, Any]

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
"""The finalizers of the garbage collector: it orphans, or deletes, what the object owns before it goes."""

Policy = Literal["Background", "Orphan", "unsupported"]
"""What a kind does with owned objects where nobody says it; ``unsupported``: it is never asked."""

_TIME = "%Y-%m-%dT%H:%M:%SZ"
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a DELETE makes of an object: ``item`` after it, whether it changed, and whether it goes now."""

    item: Object
    is_changed: bool
    is_over: bool


def deletion(
    item: Object, options: Json, *, is_pod: bool = False, policy: Policy = "Background", now: datetime
) -> Deletion:
    """What a DELETE with these DeleteOptions does to the object; ``policy`` is the default of its kind."""
    asked = options.get("gracePeriodSeconds")
    asked = 1 if asked is not None and asked < 0 else asked
    metadata = dict(item["metadata"])
    running = metadata.get("deletionGracePeriodSeconds") or 0
    is_graceful = False
    if is_pod and "deletionTimestamp" not in metadata:
        asked = _grace_of_pod(item, asked)
        _mark(metadata, now, asked)
        is_graceful = True
    elif is_pod and running:
        # A grace that already runs can only be made shorter.
        if asked is None or asked >= running:
            return Deletion(item, is_changed=False, is_over=False)
        asked = _shorten(metadata, asked, running, now)
        is_graceful = True
    finalizers = _finalizers(metadata.get("finalizers") or [], options, policy)
    if set(finalizers) != set(metadata.get("finalizers") or []):
        metadata["finalizers"] = finalizers
    if not metadata.get("finalizers"):
        metadata.pop("finalizers", None)
        if not is_graceful:
            return Deletion(item, is_changed=False, is_over=True)
        return Deletion({**item, "metadata": metadata}, is_changed=True, is_over=not asked)
    if not is_graceful:
        _mark(metadata, min(now, _moment(metadata, now)), 0)
    changed = metadata != item["metadata"]
    return Deletion({**item, "metadata": metadata}, is_changed=changed, is_over=False)


def _mark(metadata: Object, now: datetime, grace_seconds: int) -> None:
    # To be deleted is a change of what is wanted.
    if "deletionTimestamp" not in metadata and metadata.get("generation"):
        metadata["generation"] += 1
    metadata["deletionTimestamp"] = (now + timedelta(seconds=grace_seconds)).strftime(_TIME)
    metadata["deletionGracePeriodSeconds"] = grace_seconds


def _shorten(metadata: Object, asked: int, running: int, now: datetime) -> int:
    """Set the earlier end of a pod's grace, but none in the past; returns the seconds that it has."""
    moment = _moment(metadata, now) + timedelta(seconds=asked - running)
    if moment < now:
        moment, asked = now, min(asked, 1)
    metadata["deletionTimestamp"] = moment.strftime(_TIME)
    metadata["deletionGracePeriodSeconds"] = asked
    return asked


def _moment(metadata: Json, now: datetime) -> datetime:
    text = metadata.get("deletionTimestamp")
    return now if text is None else datetime.strptime(text, _TIME).replace(tzinfo=UTC)


def _grace_of_pod(pod: Json, asked: int | None) -> int:
    """How many seconds the kubelet has to end a pod; none if it has nothing to end."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in _ENDED:
        return 0
    grace = spec.get("terminationGracePeriodSeconds", 0) if asked is None else asked
    return int(grace) if grace >= 0 else 1


def _finalizers(before: list[str], options: Json, policy: Policy) -> list[str]:
    """The finalizers with that of the garbage collector which the options, the object or its kind ask for."""
    if policy == "unsupported":
        wanted = None
    elif options.get("orphanDependents") is not None:
        wanted = ORPHAN if options["orphanDependents"] else None
    elif options.get("propagationPolicy") is not None:
        wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(options["propagationPolicy"])
    else:
        # What the object has overrides the default of its kind.
        own = next((one for one in before if one in (ORPHAN, FOREGROUND)), None)
        wanted = own or (ORPHAN if policy == "Orphan" else None)
    return [one for one in before if one not in (ORPHAN, FOREGROUND)] + ([wanted] if wanted else [])
