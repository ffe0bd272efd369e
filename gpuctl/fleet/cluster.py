"""The nodes of a cluster with their GPUs, kept between readings: only what changed is read again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from driver.devices.names import DRIVER_NAME
from gpuctl.fleet.nodes import NodeState, NodeView, node_view
from gpuctl.fleet.published import PublishedNode, read_node

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Known:
    """``objects`` are kept so that no other object gets the identity of one of them."""

    objects: list[Object]
    slices: list[object]
    claims: list[object]
    published: PublishedNode
    view: NodeView


class Fleet:
    """Remembers the nodes of the last reading. Used by one thread.

    A node whose slices and claims have the versions that they had is as it was. Objects without a version,
    which no API server gave, are the same only where they are one object.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def look(self, slices: Iterable[Object], claims: Iterable[Object]) -> tuple[NodeView, ...]:
        """The nodes with GPUs of this driver, by name; raises AllocationFailed for a malformed object."""
        holders = _by_pool(claims)
        before, self._known = self._known, {}
        for name, members in sorted(_by_node(slices).items()):
            self._known[name] = _look(name, members, holders, before.get(name))
        return tuple(one.view for one in self._known.values())


def views_of(slices: Iterable[Object], claims: Iterable[Object]) -> tuple[NodeView, ...]:
    """The nodes, read once."""
    return Fleet().look(slices, claims)


def states_of(slices: Iterable[Object], claims: Iterable[Object]) -> list[NodeState]:
    """The nodes in numbers, read once."""
    return [view.state for view in views_of(slices, claims)]


def _look(
    name: str, slices: list[Object], holders: Mapping[str, list[Object]], before: _Known | None
) -> _Known:
    versions = [_version(one) for one in slices]
    same = before is not None and before.slices == versions
    published = before.published if before is not None and same else read_node(name, slices)
    claims = list({id(one): one for pool in published.pool_names for one in holders.get(pool, ())}.values())
    claimed = [_version(one) for one in claims]
    if before is not None and same and before.claims == claimed:
        return before
    return _Known([*slices, *claims], versions, claimed, published, node_view(published, claims))


def _version(item: Object) -> object:
    metadata = item["metadata"]
    version = metadata.get("resourceVersion")
    return (str(metadata.get("uid", "")), str(version)) if version else id(item)


def _by_pool(claims: Iterable[Object]) -> dict[str, list[Object]]:
    """The claims that have devices of this driver, by the pools of these."""
    holders: dict[str, list[Object]] = {}
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        results = (allocation.get("devices") or {}).get("results") or ()
        for pool in dict.fromkeys(one["pool"] for one in results if one["driver"] == DRIVER_NAME):
            holders.setdefault(pool, []).append(claim)
    return holders


def _by_node(slices: Iterable[Object]) -> dict[str, list[Object]]:
    nodes: dict[str, list[Object]] = {}
    for one in slices:
        node = one["spec"].get("nodeName")
        if one["spec"]["driver"] == DRIVER_NAME and node:
            nodes.setdefault(node, []).append(one)
    return nodes
