"""The DeviceClasses as tiers: how many devices each selects, and how many of them are held or free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.fleet.nodes import NodeView
from gpuctl.fleet.pods import WaitingPod, queues
from gpuctl.fleet.published import PublishedNode, read_node
from kubernetes_rules.allocator.requests import SelectorResults
from kubernetes_rules.errors import AllocationFailed, RuleError

Object = Mapping[str, Any]

LOOKS_ON = "monitoring"
"""The class with which admins look at devices (deploy/chart/deviceclasses): its claims take nothing."""


@dataclass(slots=True)
class Tier:
    """A class in the whole cluster; ``waiting`` pods ask for it. A shared device may be both held and free.

    ``exists`` is false for a class that pods ask for but that does not exist.
    """

    name: str
    devices: int = 0
    held: int = 0
    free: int = 0
    unavailable: int = 0
    waiting: int = 0
    exists: bool = True


class ClassDevices:
    """Which devices of each node a class selects: evaluated again when slices or classes change."""

    def __init__(self) -> None:
        self._expressions: dict[str, tuple[str, ...]] = {}
        self._selected: dict[str, tuple[object, dict[str, frozenset[str]]]] = {}

    def tiers(
        self,
        classes: Iterable[Object],
        slices: Mapping[str, Sequence[Object]],
        views: Iterable[NodeView],
        waiting: Sequence[WaitingPod],
    ) -> tuple[Tier, ...]:
        """All classes with their devices, and classes that pods ask for; ``slices`` are by node."""
        expressions = {
            str(one["metadata"]["name"]): tuple(_expressions(one))
            for one in classes
            if one["metadata"]["name"] != LOOKS_ON
        }
        if expressions != self._expressions:
            self._expressions, self._selected = expressions, {}
        self._selected = {name: self._of_node(name, items) for name, items in slices.items()}
        asked = queues(waiting)
        tiers = {name: Tier(name, exists=name in expressions) for name in sorted({*expressions, *asked})}
        for view in views:
            _, selected = self._selected.get(view.name, (None, {}))
            for name, devices in selected.items():
                tiers[name].devices += len(devices)
                tiers[name].held += len(devices & view.held)
                tiers[name].free += len(devices & view.free)
                tiers[name].unavailable += len(devices & view.unavailable)
        for name, number in asked.items():
            tiers[name].waiting = number
        return tuple(tiers.values())

    def _of_node(self, name: str, slices: Sequence[Object]) -> tuple[object, dict[str, frozenset[str]]]:
        versions = [(one["metadata"]["name"], one["metadata"].get("resourceVersion")) for one in slices]
        known = self._selected.get(name)
        if known is not None and known[0] == versions:
            return known
        try:
            published = read_node(name, slices)
        except RuleError:  # the problem of its pool says so
            return versions, {}
        results = SelectorResults()
        return versions, {
            one: frozenset(_selected(published, expressions, results))
            for one, expressions in self._expressions.items()
        }


def _expressions(device_class: Object) -> Iterator[str]:
    for selector in (device_class.get("spec") or {}).get("selectors") or ():
        if selector.get("cel"):
            yield str(selector["cel"]["expression"])


def _selected(node: PublishedNode, expressions: Sequence[str], results: SelectorResults) -> Iterator[str]:
    for pool in node.pools:
        for device in pool.devices:
            try:
                if results.first_false(device, expressions) is None:
                    yield device.id.device
            except AllocationFailed:
                # A selector that fails for a device selects nothing there. (The scheduler gives up on the
                # pod.)
                continue
