"""The nodes with GPUs: read again when their slices change, computed again when claims on them change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from driver.devices.names import DRIVER_NAME, pool_name
from gpuctl.fleet.holders import ClaimsByPool, node_of_pool
from gpuctl.fleet.nodes import NodeState, NodeView, node_view, silent_node
from gpuctl.fleet.published import PublishedNode, read_node
from gpuctl.web.seen.history import Change, node_changes, text_of
from kubernetes_rules.errors import RuleError

Object = Mapping[str, Any]


class Nodes:
    """Views of the nodes that publish devices, or of which claims have some. Not thread-safe."""

    def __init__(self, claims: ClaimsByPool) -> None:
        """``claims`` are kept by the caller, which calls ``mark_pools`` when one changed."""
        self._claims = claims
        self._slices: dict[str, dict[str, Object]] = {}
        self._nodes: dict[str, Object] = {}
        self._read: dict[str, PublishedNode | RuleError] = {}
        self._node_of_pool: dict[str, str] = {}
        self._unread: set[str] = set()
        self._dirty: set[str] = set()
        self._news: set[str] = set()
        self.views: Mapping[str, NodeView] = {}

    def read(self, name: str) -> PublishedNode | None:
        """What a node publishes, None if it publishes nothing that can be read."""
        found = self._read.get(name)
        return found if isinstance(found, PublishedNode) else None

    def update_slice(self, key: str, known: Object | None, item: Object | None, *, news: bool) -> None:
        """A slice of any driver was ``known`` and is ``item`` now, None if it does not exist."""
        # A slice that was deleted and made again under its name may be another node's.
        for one in (known, item):
            spec = (one or {}).get("spec") or {}
            name = str(spec.get("nodeName") or "")
            if one is None or not name or spec.get("driver") != DRIVER_NAME:
                continue
            members = self._slices.setdefault(name, {})
            members.pop(key, None)
            if one is item:
                members[key] = one
            self._unread.add(name)
            self._mark(name, news=news)

    def update_node(self, name: str, known: Object | None, item: Object | None) -> bool:
        """A Node changed; returns whether in anything that matters here."""
        if item is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = item
        changed = node_facts(known) != node_facts(item)
        if name in self._slices and remarks_of(known) != remarks_of(item):
            self._mark(name, news=False)
        return changed

    def mark_pools(self, pools: Iterable[str]) -> None:
        """Note that other claims have devices of these pools now."""
        for pool in pools:
            self._mark(self._node_of_pool.get(pool) or node_of_pool(pool), news=False)

    def _mark(self, name: str, *, news: bool) -> None:
        self._dirty.add(name)
        if news:
            self._news.add(name)

    def refresh(self, now: datetime) -> tuple[frozenset[str], frozenset[str], list[Change]]:
        """Compute the marked nodes again; returns them, those of them with other slices, and what changed."""
        unread, dirty, news = frozenset(self._unread), frozenset(self._dirty), self._news
        self._unread, self._dirty, self._news = set(), set(), set()
        for name in unread:
            self._read_again(name)
        views = dict(self.views)
        changes: list[Change] = []
        for name in sorted(dirty):
            before, after = views.pop(name, None), self._view(name)
            if after is not None:
                views[name] = after
            if name in news:
                changes += node_changes(text_of(now), before, after)
        if dirty:  # else it stays the same object, by which others see that nothing changed
            self.views = views
        return dirty, unread, changes

    def _read_again(self, name: str) -> None:
        old = self._read.pop(name, None)
        for pool in old.pool_names if isinstance(old, PublishedNode) else ():
            self._node_of_pool.pop(pool, None)
        members = self._slices.get(name)
        if not members:
            self._slices.pop(name, None)
            return
        try:
            read = read_node(name, members.values())
        except RuleError as error:
            self._read[name] = error
            return
        self._read[name] = read
        self._node_of_pool |= dict.fromkeys(read.pool_names, name)

    def _view(self, name: str) -> NodeView | None:
        read, node = self._read.get(name), self._nodes.get(name)
        if read is None:
            claims = self._claims.of_pools((name, pool_name(name)))
            return silent_node(name, claims, remarks_of(node)) if claims else None
        if isinstance(read, RuleError):
            return _broken(name, read, node)
        try:
            return node_view(read, self._claims.of_pools(read.pool_names), remarks_of(node))
        except RuleError as error:
            return _broken(name, error, node)


def _broken(name: str, error: RuleError, node: Object | None) -> NodeView:
    """A node whose slices or claims cannot be read."""
    return NodeView(NodeState(name, pool_problem=error.what), remarks=remarks_of(node))


def remarks_of(node: Object | None) -> tuple[str, ...]:
    """Remarks about a Node: ``cordoned``, ``not ready``."""
    if node is None:
        return ()
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((one.get("status") for one in conditions if one.get("type") == "Ready"), None)
    cordoned = bool((node.get("spec") or {}).get("unschedulable"))
    return ("cordoned",) * cordoned + ("not ready",) * (ready in ("False", "Unknown"))


def node_facts(node: Object | None) -> tuple[Any, ...]:
    """The fields of a Node that explanations and the page depend on, as a value to compare."""
    # The kubelet writes the Node's status every few minutes, at least with new times of its heartbeat.
    return tuple(_facts(node)) if node else ()


def _facts(node: Object) -> Iterator[Any]:
    yield node["metadata"].get("labels")
    spec = node.get("spec") or {}
    yield spec.get("taints")
    yield spec.get("unschedulable")
    yield (node.get("status") or {}).get("allocatable")
    yield remarks_of(node)
