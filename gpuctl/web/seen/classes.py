"""The DeviceClasses as tiers: how many devices each selects, and how many of them are held or free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.fleet.holders import Allocated
from gpuctl.fleet.nodes import NodeView
from gpuctl.fleet.pods import WaitingPod, queues
from gpuctl.fleet.published import PublishedNode
from kubernetes_rules.allocator.selector_results import SelectorResults
from kubernetes_rules.errors import AllocationFailed

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClassOnNode:
    """The devices of a node that a class selects. A shared device may be both held and free."""

    devices: int = 0
    held: int = 0
    free: int = 0
    unavailable: int = 0

    def plus(self, other: ClassOnNode) -> ClassOnNode:
        """Both together."""
        return ClassOnNode(
            self.devices + other.devices,
            self.held + other.held,
            self.free + other.free,
            self.unavailable + other.unavailable,
        )


@dataclass(frozen=True, slots=True)
class Tier:
    """A class in the whole cluster: ``claims`` have a device of it, ``waiting`` pods ask for one.

    ``exists`` is false for a class that pods ask for but that does not exist.
    """

    name: str
    count: ClassOnNode
    claims: int
    waiting: int
    exists: bool = True


class Tiers:
    """All classes with their devices. Not thread-safe.

    Which devices of a node a class selects is kept until the slices of the node or the classes change.
    """

    def __init__(self) -> None:
        self._expressions: dict[str, tuple[str, ...]] = {}
        self._devices: dict[str, dict[str, frozenset[str]]] = {}
        self._counts: dict[str, dict[str, ClassOnNode]] = {}
        self._current: set[str] = set()

    def update_classes(self, classes: Iterable[Object]) -> None:
        """Take all classes as they are now."""
        found = {str(one["metadata"]["name"]): tuple(_expressions(one)) for one in classes}
        if found != self._expressions:
            self._expressions = found
            self._current.clear()

    def mark_stale(
        self, changed: Iterable[str], other_slices: Iterable[str], views: Mapping[str, NodeView]
    ) -> None:
        """Note the nodes that changed, and those of them with other slices. ``views`` are all nodes.

        What was known of a node counts until it is evaluated again.
        """
        for name in changed:
            self._counts.pop(name, None)
            if name not in views:
                self._devices.pop(name, None)
        self._current.difference_update(other_slices)

    def evaluate(self, read: Iterable[PublishedNode], has_time: Callable[[], bool]) -> tuple[bool, bool]:
        """Evaluate the selectors for new and changed nodes while there is time.

        Returns whether any node was evaluated, and whether none is left.
        """
        evaluated = False
        for one in read:
            if one.name in self._current:
                continue
            if not has_time():
                return evaluated, False
            results = SelectorResults()
            self._devices[one.name] = {
                name: frozenset(_selected(one, expressions, results))
                for name, expressions in self._expressions.items()
            }
            self._counts.pop(one.name, None)
            self._current.add(one.name)
            evaluated = True
        return evaluated, True

    def evaluated(self, names: Iterable[str]) -> int:
        """How many of these nodes are evaluated as they are now."""
        return len(self._current.intersection(names))

    def tiers(
        self, views: Mapping[str, NodeView], held: Iterable[Allocated], waiting: Sequence[WaitingPod]
    ) -> tuple[Tier, ...]:
        """All classes with their devices, and classes that pods ask for but that do not exist."""
        totals: dict[str, ClassOnNode] = dict.fromkeys(self._expressions, ClassOnNode())
        for view in views.values():
            for name, count in self._on_node(view).items():
                if name in totals:  # a node that is not evaluated again may still have a deleted class
                    totals[name] = totals[name].plus(count)
        classes = {(one.claim, one.device_class) for one in held if one.device_class}
        claims = Counter(name for _, name in classes)
        asked = queues(waiting)
        return tuple(
            Tier(name, totals.get(name, ClassOnNode()), claims[name], asked[name], exists=name in totals)
            for name in sorted({*totals, *asked})
        )

    def _on_node(self, view: NodeView) -> dict[str, ClassOnNode]:
        if view.name not in self._counts:
            self._counts[view.name] = {
                name: ClassOnNode(
                    len(devices),
                    len(devices & view.held),
                    len(devices & view.free),
                    len(devices & view.unavailable),
                )
                for name, devices in self._devices.get(view.name, {}).items()
                if devices
            }
        return self._counts[view.name]


def _expressions(device_class: Object) -> Iterator[str]:
    for selector in (device_class.get("spec") or {}).get("selectors") or ():
        if selector.get("cel"):
            yield str(selector["cel"]["expression"])


def _selected(read: PublishedNode, expressions: Sequence[str], results: SelectorResults) -> Iterator[str]:
    for pool in read.pools:
        for device in pool.devices:
            try:
                if results.first_false(device, expressions) is None:
                    yield device.id.device
            except AllocationFailed:
                # A selector that fails for a device selects nothing there. (The scheduler gives up on the
                # pod.)
                continue
