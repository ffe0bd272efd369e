"""Counts the devices of each class, node by node: what the selectors say, and what claims have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gpuctl.fleet.holders import Allocated
from gpuctl.fleet.nodes import NodeView
from gpuctl.fleet.published import PublishedNode
from gpuctl.fleet.waiting import WaitingPod, queues
from gpuctl.web.seen.classes import ClassOnNode, Selected, Tier

Object = Mapping[str, Any]


class Tiers:
    """The classes with their devices. Not for several threads."""

    def __init__(self) -> None:
        self._selected = Selected()
        self._on_node: dict[str, dict[str, ClassOnNode]] = {}

    def take_classes(self, classes: Iterable[Object]) -> None:
        """The classes are these now."""
        self._selected.take_classes(classes)
        self._on_node.clear()

    def doubt(
        self, changed: Iterable[str], published_anew: Iterable[str], views: Mapping[str, NodeView]
    ) -> None:
        """Something on these nodes is otherwise; on some of them what is published. ``views`` are all."""
        for name in changed:
            self._on_node.pop(name, None)
            if name not in views:
                self._selected.forget(name)
        for name in published_anew:
            self._selected.doubt(name)

    def look(self, read: Iterable[PublishedNode], has_time: Callable[[], bool]) -> tuple[bool, bool]:
        """Ask about nodes of which nothing is known as long as there is time; whether any, whether all."""
        asked = False
        for one in read:
            if self._selected.knows(one.name):
                continue
            if not has_time():
                return asked, False
            self._selected.look(one)
            self._on_node.pop(one.name, None)
            asked = True
        return asked, True

    def known(self, names: Iterable[str]) -> int:
        """How many of these nodes were asked about."""
        return sum(self._selected.knows(name) for name in names)

    def selecting(self, node: str, device: str) -> list[str]:
        """The classes that select a device, sorted."""
        return sorted(name for name, devices in self._selected.of(node).items() if device in devices)

    def tiers(
        self, views: Mapping[str, NodeView], held: Iterable[Allocated], waiting: Sequence[WaitingPod]
    ) -> tuple[Tier, ...]:
        """All classes with what they have in the cluster, also those that pods ask for and nobody made."""
        totals: dict[str, ClassOnNode] = dict.fromkeys(self._selected.names, ClassOnNode())
        for view in views.values():
            for name, count in self._on(view).items():
                if name in totals:  # a class that is gone may still be known of a node
                    totals[name] = totals[name].plus(count)
        classes = {(one.claim, one.device_class) for one in held if one.device_class}
        claims = Counter(name for _, name in classes)
        asked = queues(waiting)
        return tuple(
            Tier(name, totals.get(name, ClassOnNode()), claims[name], asked[name], exists=name in totals)
            for name in sorted({*totals, *asked})
        )

    def _on(self, view: NodeView) -> dict[str, ClassOnNode]:
        known = self._on_node.get(view.name)
        if known is None:
            known = self._on_node[view.name] = {
                name: ClassOnNode(
                    len(devices),
                    len(devices & view.held),
                    len(devices & view.free),
                    len(devices & view.unavailable),
                )
                for name, devices in self._selected.of(view.name).items()
                if devices
            }
        return known
