"""Takes what watches report, one object at a time, and computes only what depends on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from gpuctl.fleet.holders import Allocated, ClaimsByPool, claim_key
from gpuctl.fleet.nodes import NodeView
from gpuctl.fleet.pods import WaitingPod, queues, waiting_pod
from gpuctl.fleet.published import PublishedNode
from gpuctl.web.seen.classes import ClassOnNode, Selected, Tier
from gpuctl.web.seen.history import Change, History, claim_changes, event_change, pod_changes, text_of
from gpuctl.web.seen.view import PARTS, Objects, View, ordered, sick, summary
from gpuctl.web.watch.nodes import Nodes

Object = dict[str, Any]
Kind = Literal["node", "slice", "class", "claim", "pod", "event"]


class ClusterState:
    """The objects of a cluster and what the page shows of them. Not for several threads.

    ``take`` notes an object as it is now, ``refresh`` gives the view. What is ``told`` becomes history; the
    objects of a first list were there before the page started.
    """

    def __init__(self) -> None:
        kinds: tuple[Kind, ...] = ("node", "slice", "class", "claim", "pod")
        self._objects: dict[Kind, dict[str, Object]] = {kind: {} for kind in kinds}
        self._claims = ClaimsByPool()
        self._nodes = Nodes(self._claims)
        self._tiers = Tiers()
        self._waiting: dict[str, WaitingPod] = {}
        self._stale_pods: set[str] = set()
        self._history = History()
        self._recount = False
        self._cluster = 0
        self._view = View()
        self.has_more = False
        """Whether ``refresh`` has left something for want of time."""

    def take(self, kind: Kind, item: Object, now: datetime, *, gone: bool, told: bool) -> None:
        """An object is there as it is now, or is gone."""
        if kind == "event":
            change = None if gone else event_change(text_of(now), item)
            self._note(now, [change] if told and change else ())
            return
        key = claim_key(item)
        known = self._objects[kind].pop(key, None)
        after = None if gone else item
        if after is not None:
            self._objects[kind][key] = after
        matters = True
        if kind == "node":
            matters = self._nodes.take_node(key.removeprefix("/"), known, after)
        elif kind == "slice":
            self._nodes.take_slice(key, known, after, told=told)
        elif kind == "class":
            self._tiers.take_classes(self._objects["class"].values())
            self._recount = True
        elif kind == "claim":
            self._take_claim(key, after, now, told=told)
        else:
            self._take_pod(key, after, now, told=told)
        self._cluster += matters

    def _take_claim(self, key: str, item: Object | None, now: datetime, *, told: bool) -> None:
        before = self._claims.held_by(key)
        self._nodes.take_pools(self._claims.take(item, key))
        if told:
            self._note(now, claim_changes(text_of(now), key, before, self._claims.held_by(key)))
        namespace = f"{key.partition('/')[0]}/"
        self._stale_pods |= {pod for pod in self._waiting if pod.startswith(namespace)}

    def _take_pod(self, key: str, item: Object | None, now: datetime, *, told: bool) -> None:
        before, after = self._waiting.pop(key, None), None
        if item is not None:
            after = self._waiting[key] = self._pod(item)
        if told:
            self._note(now, pod_changes(text_of(now), before, after))
        self._recount = True

    def _pod(self, pod: Object) -> WaitingPod:
        return waiting_pod(pod, self._objects["claim"], self._objects["class"].values())

    def _note(self, now: datetime, changes: Iterable[Change]) -> None:
        for change in changes:
            self._history.add(now, change)

    def refresh(
        self, now: datetime, *, synced: bool, failing: tuple[str, ...], has_time: Callable[[], bool]
    ) -> View:
        """The view as it is now; the same as before when nothing has changed.

        ``has_time`` is asked before each node about whose devices the selectors of classes are to be asked,
        which takes milliseconds; where it says no, the next call goes on there.
        """
        changed, published_anew, changes = self._nodes.refresh(now)
        self._note(now, changes)
        views = self._nodes.views
        self._tiers.doubt(changed, published_anew, views)
        read = (one for name in views if (one := self._nodes.read(name)) is not None)
        asked, all_asked = self._tiers.look(read, has_time)
        self.has_more = not all_asked
        for key in self._stale_pods & self._waiting.keys():
            self._waiting[key] = self._pod(self._objects["pod"][key])
        counts = bool(changed or asked or self._recount or self._stale_pods)
        self._stale_pods.clear()
        self._recount = False
        return self._publish(now, self._view_with(now, counts=counts, synced=synced, failing=failing))

    def _view_with(self, now: datetime, *, counts: bool, synced: bool, failing: tuple[str, ...]) -> View:
        before, views = self._view, self._nodes.views
        view = replace(
            before,
            cluster=self._cluster,
            synced=synced,
            failing=failing,
            history=self._history.changes(now),
        )
        if not counts:
            return view
        waiting = tuple(sorted(self._waiting.values(), key=lambda one: (one.since, one.key)))
        order = before.order if views is before.nodes else ordered(views)
        return replace(
            view,
            nodes=views,
            order=order,
            waiting=waiting,
            summary=summary(views, waiting),
            sick=before.sick if views is before.nodes else sick(views, order),
            tiers=self._tiers.tiers(views, self._claims.all_held(), waiting),
            classes_of=self._tiers.known(views),
        )

    def _publish(self, now: datetime, view: View) -> View:
        """The view with the versions of the parts that differ from those of before."""
        before = self._view
        differs = {
            "summary": view.summary != before.summary
            or (view.failing, view.synced) != (before.failing, before.synced),
            "sick": view.sick != before.sick,
            "waiting": view.waiting != before.waiting,
            "tiers": (view.tiers, view.classes_of) != (before.tiers, before.classes_of),
            "nodes": view.nodes != before.nodes,
            "history": view.history != before.history,
        }
        if not any(differs.values()) and view.cluster == before.cluster:
            return before
        version = before.version + 1
        self._view = replace(
            view,
            version=version,
            parts={part: version if differs[part] else before.parts[part] for part in PARTS},
            objects=Objects(
                tuple(self._objects["node"].values()),
                tuple(self._objects["slice"].values()),
                tuple(self._objects["class"].values()),
                tuple(self._objects["claim"].values()),
                dict(self._objects["pod"]),
            ),
            at=text_of(now),
            since=before.since or (text_of(now) if view.synced else ""),
        )
        return self._view


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
        """Something on these nodes changed; on some of them what is published. ``views`` are all."""
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
        """All classes with what they have in the cluster, also missing ones that pods ask for."""
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
