"""The DeviceClasses as tiers: how many devices each selects, how many are held or free, which pods wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.fleet.published import PublishedNode
from kubernetes_rules.allocator.selector_results import SelectorResults
from kubernetes_rules.errors import AllocationFailed

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClassOnNode:
    """How the devices that a class selects are. A device may be of several classes, and be held and free."""

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
    """A class in the whole cluster; ``claims`` have a device by it, ``waiting`` pods ask for one.

    ``exists`` is false for a class that pods ask for and that does not exist.
    """

    name: str
    count: ClassOnNode
    claims: int
    waiting: int
    exists: bool = True


class Selected:
    """Which devices the classes select, kept by node until its slices or the classes change.

    A class's selector that fails on a device selects nothing there, as for the scheduler.
    """

    def __init__(self) -> None:
        self._classes: dict[str, tuple[str, ...]] = {}
        self._nodes: dict[str, dict[str, frozenset[str]]] = {}
        self._fresh: set[str] = set()

    def take_classes(self, classes: Iterable[Object]) -> None:
        """The classes are these now."""
        found = {str(one["metadata"]["name"]): tuple(_expressions(one)) for one in classes}
        if found != self._classes:
            self._classes = found
            self._fresh.clear()

    def doubt(self, node: str) -> None:
        """The slices of a node changed; what was known of it counts until it was asked about again."""
        self._fresh.discard(node)

    def forget(self, node: str) -> None:
        """A node publishes nothing any more."""
        self._nodes.pop(node, None)

    def knows(self, node: str) -> bool:
        """Whether the devices of a node were asked about as they are now."""
        return node in self._fresh

    @property
    def names(self) -> Sequence[str]:
        """The names of all classes, sorted."""
        return sorted(self._classes)

    def look(self, read: PublishedNode) -> None:
        """Ask all selectors about the devices of a node."""
        results = SelectorResults()
        self._fresh.add(read.name)
        self._nodes[read.name] = {
            name: frozenset(_selected(read, expressions, results))
            for name, expressions in self._classes.items()
        }

    def of(self, node: str) -> Mapping[str, frozenset[str]]:
        """The names of a node's devices by class; none where it was not asked about."""
        return self._nodes.get(node, {})


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
                continue
