"""Takes the objects that watches report, one at a time, and computes only what depends on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from gpuctl.fleet.holders import ClaimsByPool, claim_key
from gpuctl.fleet.pods import WaitingPod, waiting_pod
from gpuctl.web.seen.classes import Tiers
from gpuctl.web.seen.history import Change, History, claim_changes, event_change, pod_changes, text_of
from gpuctl.web.seen.view import PARTS, Objects, View, ordered, sick, summary
from gpuctl.web.watch.nodes import Nodes

Object = dict[str, Any]
Kind = Literal["node", "slice", "class", "claim", "pod", "driver", "event"]
"""``pod`` is one that waits for devices, ``driver`` a pod of the driver."""


class ClusterState:
    """The objects of a cluster and what the page shows of them. Not thread-safe.

    ``update`` takes an object as it is now, ``refresh`` computes the view. What is ``news`` becomes history;
    the objects of a first list existed before the page started.
    """

    def __init__(self) -> None:
        kinds: tuple[Kind, ...] = ("node", "slice", "class", "claim", "pod", "driver")
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
        """Whether ``refresh`` had no time to finish, and has to be called again."""

    def update(self, kind: Kind, item: Object, now: datetime, *, gone: bool, news: bool) -> None:
        """Take an object as it is now, or note that it is gone."""
        if kind == "event":
            change = None if gone else event_change(text_of(now), item)
            self._note(now, [change] if news and change else ())
            return
        # namespace/name; objects without a namespace have an empty one.
        key = claim_key(item)
        known = self._objects[kind].pop(key, None)
        after = None if gone else item
        if after is not None:
            self._objects[kind][key] = after
        # Whether it can change an explanation: heartbeats of nodes do not, and there are many.
        matters = True
        if kind == "node":
            matters = self._nodes.update_node(key.removeprefix("/"), known, after)
        elif kind == "slice":
            self._nodes.update_slice(key, known, after, news=news)
        elif kind == "class":
            self._tiers.update_classes(self._objects["class"].values())
            # A class may provide the extended resource of a pod that was seen before it.
            self._stale_pods |= {pod for pod, waiting in self._waiting.items() if waiting.resources}
            self._recount = True
        elif kind == "claim":
            self._update_claim(key, after, now, news=news)
        elif kind == "driver":
            self._recount, matters = True, False
        else:
            self._update_pod(key, after, now, news=news)
        self._cluster += matters

    def _update_claim(self, key: str, item: Object | None, now: datetime, *, news: bool) -> None:
        before = self._claims.held_by(key)
        self._nodes.mark_pools(self._claims.update(item, key))
        if news:
            self._note(now, claim_changes(text_of(now), key, before, self._claims.held_by(key)))
        # A waiting pod shows the classes that its claims ask for, and claims are in its own namespace.
        namespace = f"{key.partition('/')[0]}/"
        self._stale_pods |= {pod for pod in self._waiting if pod.startswith(namespace)}

    def _update_pod(self, key: str, item: Object | None, now: datetime, *, news: bool) -> None:
        before, after = self._waiting.pop(key, None), None
        if item is not None:
            after = self._waiting[key] = self._pod(item)
        if news:
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
        """The view as it is now; the same object as before if nothing has changed.

        ``has_time`` is called before the selectors of classes are evaluated for the devices of a node, which
        takes milliseconds. If it returns false, the next call goes on there.
        """
        changed, other_slices, changes = self._nodes.refresh(now)
        self._note(now, changes)
        views = self._nodes.views
        self._tiers.mark_stale(changed, other_slices, views)
        read = (one for name in views if (one := self._nodes.read(name)) is not None)
        evaluated, all_evaluated = self._tiers.evaluate(read, has_time)
        self.has_more = not all_evaluated
        for key in self._stale_pods & self._waiting.keys():
            self._waiting[key] = self._pod(self._objects["pod"][key])
        counts = bool(changed or evaluated or self._recount or self._stale_pods)
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
            sick=sick(views, order, self._objects["driver"].values()),
            tiers=self._tiers.tiers(views, self._claims.all_held(), waiting),
            classes_of=self._tiers.evaluated(views),
        )

    def _publish(self, now: datetime, view: View) -> View:
        """The view, with a new version for each part that differs from before."""
        # Browsers fetch only the parts whose version has grown.
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
