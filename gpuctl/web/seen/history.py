"""What changed in the last hour: taints, claims and pods, by comparing old and new, and events."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from gpuctl.fleet.gpus import GpuState
from gpuctl.fleet.holders import Allocated
from gpuctl.fleet.nodes import NodeView
from gpuctl.fleet.pods import WaitingPod

Object = Mapping[str, Any]
Tone = Literal["bad", "good", "plain"]

KEPT = timedelta(hours=1)
MOST_CHANGES = 2000
"""The most changes that are kept, however much happens in an hour."""

_MOST_OF_EVENT = 300


@dataclass(frozen=True, slots=True)
class Change:
    """One change. ``at`` is RFC 3339; ``about`` is the name of the object, ``kind`` its kind.

    An event that came several ``times`` is one change; ``first`` is when it came first, RFC 3339.
    """

    at: str
    kind: Literal["node", "claim", "pod"]
    about: str
    text: str
    tone: Tone = "plain"
    is_event: bool = False
    times: int = 1
    first: str = ""


class History:
    """The changes of the last hour, the newest first, at most ``MOST_CHANGES``."""

    def __init__(self) -> None:
        self._changes: OrderedDict[Hashable, tuple[datetime, Change]] = OrderedDict()
        self._number = 0

    def add(self, at: datetime, change: Change) -> None:
        """Add a change. An event that is already there is counted, and becomes the newest change."""
        # A failure that lasts is reported every minute, and would push everything else off the page. Other
        # changes are never joined: a taint that came, went and came again did change three times.
        self._number += 1
        key = (change.kind, change.about, change.text) if change.is_event else self._number
        known = self._changes.pop(key, None)
        if known is not None:
            first = known[1].first or known[1].at
            change = replace(change, times=known[1].times + 1, first=first)
        self._changes[key] = (at, change)
        if len(self._changes) > MOST_CHANGES:
            self._changes.popitem(last=False)

    def changes(self, now: datetime) -> tuple[Change, ...]:
        """The changes of the last hour; older ones are dropped."""
        while self._changes:
            oldest = next(iter(self._changes))
            if now - self._changes[oldest][0] <= KEPT:
                break
            del self._changes[oldest]
        return tuple(change for _, change in reversed(self._changes.values()))


def node_changes(at: str, before: NodeView | None, after: NodeView | None) -> Iterator[Change]:
    """What changed on a node: its GPUs, taints, its pool."""
    if before is None or after is None:
        node = after or before
        if node is not None:
            words = f"publishes {len(node.gpus)} GPUs" if after else "no longer publishes GPUs"
            yield Change(at, "node", node.name, words, "plain" if after else "bad")
        return
    if before.state.pool_problem != after.state.pool_problem:
        words = (
            f"nothing of its pool can be allocated: {after.state.pool_problem}"
            if after.state.pool_problem
            else "its pool can be used again"
        )
        yield Change(at, "node", after.name, words, "bad" if after.state.pool_problem else "good")
    old = {gpu.device: gpu for gpu in before.gpus}
    for gpu in after.gpus:
        for change in _gpu_changes(old.pop(gpu.device, None), gpu):
            yield Change(at, "node", after.name, *change)
    for gone in old.values():
        yield Change(at, "node", after.name, f"{gone.title} is no longer published", "bad")


def _gpu_changes(before: GpuState | None, after: GpuState) -> Iterator[tuple[str, Tone]]:
    if before is None:
        yield f"{after.title} is published", "plain"
    known = {one.taint for one in before.taints} if before else set()
    present = {one.taint for one in after.taints}
    for taint in sorted(present - known, key=str):
        yield f"{after.title}: taint {taint} added", "bad"
    for taint in sorted(known - present, key=str):
        yield f"{after.title}: taint {taint} removed", "good"


def claim_changes(
    at: str, claim: str, before: Sequence[Allocated], after: Sequence[Allocated]
) -> Iterator[Change]:
    """The devices that a claim got or released, and whether they are ready."""
    had, has = {(one.pool, one.device): one for one in before}, {(one.pool, one.device): one for one in after}
    if new := [f"{pool}/{device}" for pool, device in has if (pool, device) not in had]:
        yield Change(at, "claim", claim, f"got {', '.join(new)}")
    if gone := [f"{pool}/{device}" for pool, device in had if (pool, device) not in has]:
        yield Change(at, "claim", claim, f"released {', '.join(gone)}")
    for place, one in has.items():
        was = had[place].trouble if place in had else None
        if was != one.trouble:
            words = f"not ready: {one.trouble}" if one.trouble else "ready again"
            yield Change(at, "claim", claim, f"{one.device} is {words}", "bad" if one.trouble else "good")


def pod_changes(at: str, before: WaitingPod | None, after: WaitingPod | None) -> Iterator[Change]:
    """A pod began to wait, was placed, or no longer waits."""
    if before is None and after is not None:
        asked = ", ".join(after.asks)
        yield Change(at, "pod", after.key, f"asks for {asked}" if asked else "asks for devices")
    if after is not None and after.node and (before is None or before.node != after.node):
        yield Change(at, "pod", after.key, f"was placed on {after.node}")
    if before is not None and after is None:
        yield Change(at, "pod", before.key, "no longer waits", "good" if before.node else "plain")


def event_change(at: str, event: Object) -> Change | None:
    """The driver's Event about a node, a claim or a pod; None for an Event about anything else."""
    involved = event.get("involvedObject") or {}
    kinds: dict[str, Literal["node", "claim", "pod"]] = {
        "Node": "node",
        "ResourceClaim": "claim",
        "Pod": "pod",
    }
    kind = kinds.get(str(involved.get("kind")))
    if kind is None:
        return None
    name = str(involved.get("name") or "")
    about = name if kind == "node" else f"{involved.get('namespace') or ''}/{name}"
    text = f"{event.get('reason') or ''}: {event.get('message') or ''}"
    cut = text if len(text) <= _MOST_OF_EVENT else f"{text[:_MOST_OF_EVENT]}…"
    tone: Tone = "bad" if event.get("type") == "Warning" else "plain"
    return Change(at, kind, about, cut, tone, is_event=True)


def text_of(at: datetime) -> str:
    """RFC 3339 in UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> datetime | None:
    """The moment that an object names, None if it cannot be understood."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    # A time without a zone could be any of a day; the API server writes Z.
    return found if found.tzinfo else None


def ago(since: str, now: str) -> str:
    """How long ago something was: ``12 s``, ``5 min``, ``3 h``, ``2 d``; empty if unknown."""
    begin, end = moment(since), moment(now)
    if begin is None or end is None:
        return ""
    seconds = max(0, int((end - begin).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
