"""The cluster that a simulation begins with: nodes of machines, or a live cluster as it is now.

Also its DeviceClasses, from files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from driver.errors import ConfigError
from envtest.client.shipped import PACKAGE_ROOT
from gpuctl.cli.cluster import ClusterView
from gpuctl.explain.snapshot import take_snapshot
from kubernetes_rules.taints import tainted_slices

Object = dict[str, Any]

_SHIPPED = PACKAGE_ROOT / "deviceclasses"


@dataclass(frozen=True, slots=True)
class SimulatedCluster:
    """What the scheduler sees before the first pod comes.

    ``nodes`` are those that pods may go to, ``slices`` all that is published, ``claims`` those that have
    devices and keep them. ``patterns`` says of each node which it is like: equal numbers publish the same.
    """

    nodes: tuple[Object, ...]
    slices: tuple[Object, ...]
    classes: tuple[Object, ...]
    claims: tuple[Object, ...] = ()
    patterns: tuple[int, ...] = ()


def planned_cluster(
    machines: Iterable[tuple[int, Sequence[Object]]], classes: Sequence[Object]
) -> SimulatedCluster:
    """So many nodes of each machine; the slices are those that one of them publishes."""
    nodes: list[Object] = []
    slices: list[Object] = []
    patterns: list[int] = []
    for pattern, (count, published) in enumerate(machines):
        for _ in range(count):
            slices += [_slice_of(one, len(nodes)) for one in published]
            nodes.append(_node(len(nodes)))
            patterns.append(pattern)
    return SimulatedCluster(tuple(nodes), tuple(slices), tuple(classes), (), tuple(patterns))


def live_cluster(view: ClusterView, classes: Sequence[Object]) -> SimulatedCluster:
    """A cluster as it is now, without its cordoned nodes; ``classes`` replace its own where there are any.

    Raises ApiError where it cannot be read, ConfigError where no node takes pods.
    """
    found = take_snapshot(view)
    nodes = found.known_nodes()
    open_nodes = tuple(node for node in nodes if not (node.get("spec") or {}).get("unschedulable"))
    if not open_nodes:
        raise ConfigError("the cluster has no node that takes pods", "uncordon one, or use --nodes")
    allocated = tuple(claim for claim in found.claims if (claim.get("status") or {}).get("allocation"))
    return SimulatedCluster(
        open_nodes,
        tuple(tainted_slices(found.slices, found.taint_rules)),
        tuple(classes) or found.classes,
        allocated,
        tuple(range(len(open_nodes))),
    )


def _node(index: int) -> Object:
    name = f"node-{index}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
    }


def _slice_of(one: Mapping[str, Any], index: int) -> Object:
    """The slice of the pattern's node, for another node."""
    name, spec = f"node-{index}", one["spec"]
    pool = {**spec["pool"], "name": f"{name}/{spec['driver']}"}
    return {
        **one,
        "metadata": {"name": f"{one['metadata']['name']}-{index}"},
        "spec": {**spec, "nodeName": name, "pool": pool},
    }


def load_classes(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The DeviceClasses in these files, or the shipped ones when none is named. Raises ConfigError."""
    chosen = list(files) or sorted(_SHIPPED.glob("*.yaml"))
    if not chosen:
        raise ConfigError(f"there are no device classes in {_SHIPPED}", "name files with --classes")
    found = []
    for path in chosen:
        try:
            documents = list(yaml.safe_load_all(path.read_bytes()))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}", "check --classes") from error
        except yaml.YAMLError as error:
            raise ConfigError(f"{path} is no YAML: {error}", "check --classes") from error
        found += [one for one in documents if isinstance(one, dict) and one.get("kind") == "DeviceClass"]
    return found
