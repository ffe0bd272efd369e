"""The nodes of a cluster with their GPUs, kept from one look to the next: only what changed is read anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.status.fleet import NodeState, PublishedNode, node_state, published_nodes
from gpuctl.status.gpus import GpuState, gpus_of

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node: what of it is allocated, free or amiss, and its GPUs one by one."""

    state: NodeState
    gpus: tuple[GpuState, ...]

    @property
    def name(self) -> str:
        """The node's name."""
        return self.state.name

    @property
    def is_amiss(self) -> bool:
        """Whether a device is tainted, the pool cannot be used, or a memory limit is not held."""
        return self.state.is_amiss


class ClusterState:
    """Remembers the nodes of the last look. Used by one thread.

    A node whose slices and claims have the versions that they had is as it was. Objects without a version,
    which no API server gave, are the same only where they are one object.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[PublishedNode, NodeView]] = {}

    def look(self, slices: Iterable[Object], claims: Iterable[Object]) -> tuple[NodeView, ...]:
        """The nodes with GPUs of this driver, by name; raises AllocationFailed for a malformed object."""
        known, self._known = self._known, {}
        for node in published_nodes(slices, claims):
            before = known.get(node.name)
            if before is not None and _same(before[0], node):
                self._known[node.name] = before
            else:
                self._known[node.name] = (node, NodeView(node_state(node), gpus_of(node)))
        return tuple(view for _, view in self._known.values())


def views_of(slices: Iterable[Object], claims: Iterable[Object]) -> tuple[NodeView, ...]:
    """The nodes of a single look."""
    return ClusterState().look(slices, claims)


def _same(one: PublishedNode, other: PublishedNode) -> bool:
    return _versions(one) == _versions(other)


def _versions(node: PublishedNode) -> list[tuple[str, str] | int]:
    found: list[tuple[str, str] | int] = []
    for item in (*node.slices, *node.claims):
        metadata = item["metadata"]
        version = metadata.get("resourceVersion")
        found.append((str(metadata.get("uid", "")), str(version)) if version else id(item))
    return found
