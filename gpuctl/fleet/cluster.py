"""Reads the nodes of a cluster with their GPUs; in a later reading only nodes that changed are computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from driver.devices.names import DRIVER_NAME
from gpuctl.fleet.holders import node_of_pool
from gpuctl.fleet.nodes import NodeView, node_view, silent_node
from gpuctl.fleet.published import PublishedNode, read_node

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Known:
    """A node as it was computed last, and the versions of the slices and claims behind it."""

    # Never read. While they are referenced, no other object can get the id() of one of them; see _version.
    objects: list[Object]
    slices: list[object]
    claims: list[object]
    published: PublishedNode
    view: NodeView


class Fleet:
    """Keeps the nodes of the last reading, and computes those again whose slices or claims have changed.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def read(self, slices: Iterable[Object], claims: Iterable[Object]) -> tuple[NodeView, ...]:
        """The nodes that publish GPUs of this driver, or on which claims have some, by name.

        Raises AllocationFailed for a malformed object.
        """
        holders = _by_pool(claims)
        before, self._known = self._known, {}
        for name, members in sorted(_by_node(slices).items()):
            self._known[name] = _read(name, members, holders, before.get(name))
        published = {pool for one in self._known.values() for pool in one.published.pool_names}
        silent: dict[str, list[Object]] = {}
        for pool in holders.keys() - published:
            silent.setdefault(node_of_pool(pool), []).extend(holders[pool])
        views = [one.view for one in self._known.values()]
        views += [silent_node(name, held) for name, held in silent.items()]
        return tuple(sorted(views, key=lambda one: one.name))


def views_of(slices: Iterable[Object], claims: Iterable[Object]) -> tuple[NodeView, ...]:
    """The nodes, read once."""
    return Fleet().read(slices, claims)


def _read(
    name: str, slices: list[Object], holders: Mapping[str, list[Object]], before: _Known | None
) -> _Known:
    versions = [_version(one) for one in slices]
    same = before is not None and before.slices == versions
    published = before.published if before is not None and same else read_node(name, slices)
    # A claim with devices of several pools of the node counts once.
    claims = list({id(one): one for pool in published.pool_names for one in holders.get(pool, ())}.values())
    claimed = [_version(one) for one in claims]
    if before is not None and same and before.claims == claimed:
        return before
    return _Known([*slices, *claims], versions, claimed, published, node_view(published, claims))


def _version(item: Object) -> object:
    metadata = item["metadata"]
    # Every write gives an object another resourceVersion. Objects of a file or a plan have none, so each of
    # those is equal to itself alone.
    version = metadata.get("resourceVersion")
    return (str(metadata.get("uid", "")), str(version)) if version else id(item)


def _by_pool(claims: Iterable[Object]) -> dict[str, list[Object]]:
    """The claims that have devices of this driver, by the pools of the devices."""
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
        # This driver publishes for one node each; a slice without a node name is not one of its own.
        node = one["spec"].get("nodeName")
        if one["spec"]["driver"] == DRIVER_NAME and node:
            nodes.setdefault(node, []).append(one)
    return nodes
