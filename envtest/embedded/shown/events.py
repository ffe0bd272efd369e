"""Shows the events of the core group as events.k8s.io has them, and takes them in that form."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

GROUP = "events.k8s.io"

_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_BACK = {new: old for old, new in _NAMES.items()}


def from_core(event: Object) -> Object:
    """A core event with the names of events.k8s.io."""
    return {_NAMES.get(name, name): value for name, value in event.items()}


def to_core(event: Object) -> Object:
    """An event of events.k8s.io with the names of the core group."""
    return {_BACK.get(name, name): value for name, value in event.items()} | {"apiVersion": "v1"}
