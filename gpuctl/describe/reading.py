"""Finds the node, GPU or claim to describe in a cluster, and reads what belongs to it."""

from __future__ import annotations

from collections.abc import Sequence

from driver.devices.names import DRIVER_NAME
from driver.errors import ConfigError
from driver.kube.paths import events_path
from gpuctl.cli.cluster import DRA, ClusterView, Object
from gpuctl.fleet.cluster import views_of
from gpuctl.fleet.gpus import GpuState
from gpuctl.fleet.holders import allocated
from gpuctl.fleet.nodes import NodeView


def read_node(view: ClusterView, name: str) -> NodeView:
    """A node with its GPUs; raises ConfigError if it publishes nothing."""
    # The API server selects slices by spec.nodeName and spec.driver.
    slices = view.listed(f"{DRA}/resourceslices", fieldSelector=f"spec.nodeName={name}")
    slices = [one for one in slices if one["spec"]["driver"] == DRIVER_NAME]
    found = [one for one in views_of(slices, view.claims()) if one.name == name]
    if not found:
        raise ConfigError(
            f"{name} publishes nothing of the driver {DRIVER_NAME}", "`gpuctl status` lists the nodes that do"
        )
    return found[0]


def find_gpu(view: ClusterView, name: str) -> tuple[GpuState, Sequence[GpuState]]:
    """The GPU that a name means, and all GPUs of its node.

    A name is ``NODE/INDEX``, ``NODE/ADDRESS``, ``NODE/DEVICE``, a UUID, or an address or a device's name that
    only one node has. Raises ConfigError for none and for several.
    """
    # Neither UUIDs nor addresses nor names of devices have a slash. An index says nothing without its node.
    node, _, inner = name.rpartition("/")
    if node:
        candidates, where = read_node(view, node).gpus, f"node {node}"
    else:
        slices = [one for one in view.slices() if one["spec"]["driver"] == DRIVER_NAME]
        candidates = tuple(gpu for one in views_of(slices, view.claims()) for gpu in one.gpus)
        where = "the cluster"
    meant = [gpu for gpu in candidates if _is_called(gpu, inner, by_index=bool(node))]
    if not meant:
        raise ConfigError(
            f"{where} has no GPU {inner}",
            "name it as NODE/INDEX, NODE/ADDRESS or by its UUID; `gpuctl describe node NODE` lists them",
        )
    if len(meant) > 1:
        nodes = ", ".join(sorted({gpu.node for gpu in meant})[:4])
        raise ConfigError(f"{len(meant)} GPUs are called {inner}, on {nodes}", f"write NODE/{inner}")
    return meant[0], [gpu for gpu in candidates if gpu.node == meant[0].node]


def _is_called(gpu: GpuState, name: str, *, by_index: bool) -> bool:
    names = {gpu.device, gpu.pci, gpu.uuid}
    return name in names or (by_index and gpu.index is not None and name == str(gpu.index))


def node_events(view: ClusterView, node: str) -> list[Object] | None:
    """The events about a node; None if they may not be read."""
    # A node has no namespace, but an event about it lies in one, which its reporter chose.
    selector = f"involvedObject.kind=Node,involvedObject.name={node}"
    return view.listed_if_readable("/api/v1/events", fieldSelector=selector)


def claim_events(view: ClusterView, claim: Object) -> list[Object] | None:
    """The events about a claim and the pods that use it; None if they may not be read."""
    path = events_path(str(claim["metadata"].get("namespace")))
    found: list[Object] = []
    uids = [str(claim["metadata"].get("uid"))]
    uids += [str(one.get("uid")) for one in (claim.get("status") or {}).get("reservedFor") or ()]
    for uid in uids:
        events = view.listed_if_readable(path, fieldSelector=f"involvedObject.uid={uid}")
        if events is None:
            return None
        found += events
    return found


def nodes_of(view: ClusterView, claim: Object) -> Sequence[NodeView]:
    """The nodes where a claim has devices of this driver, with what this claim holds there."""
    pools = {one.pool for one in allocated(claim)}
    if not pools:
        return ()
    slices = [one for one in view.slices() if one["spec"]["pool"]["name"] in pools]
    return views_of(slices, [claim])
