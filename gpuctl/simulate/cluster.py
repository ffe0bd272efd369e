"""Makes the cluster that a simulation begins with: nodes of some machines, or a live cluster as it is now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from driver.errors import ConfigError
from driver.policy.strict_yaml import load_all_strictly
from envtest.client.shipped import PACKAGE_ROOT
from gpuctl.cli.cluster import ClusterView
from gpuctl.explain.snapshot import take_snapshot
from kubernetes_rules.taints import tainted_slices

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SimulatedCluster:
    """What the scheduler sees before the first pod comes.

    Pods may go to all ``nodes``. ``claims`` have devices and keep them. ``patterns`` has a number for each
    node; nodes with the same number publish the same.
    """

    nodes: tuple[Object, ...]
    slices: tuple[Object, ...]
    classes: tuple[Object, ...]
    claims: tuple[Object, ...] = ()
    patterns: tuple[int, ...] = ()


def planned_cluster(
    machines: Iterable[tuple[int, Sequence[Object]]], classes: Sequence[Object]
) -> SimulatedCluster:
    """Nodes of some machines: how many of each, and the slices that one such node publishes."""
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
    """A cluster as it is now, without its cordoned nodes; ``classes`` replace its own if there are any.

    Raises ApiError if it cannot be read, ConfigError if no node takes pods.
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
    """The same slice for the node with this number."""
    name, spec = f"node-{index}", one["spec"]
    pool = {**spec["pool"], "name": f"{name}/{spec['driver']}"}
    return {
        **one,
        "metadata": {"name": f"{one['metadata']['name']}-{index}"},
        "spec": {**spec, "nodeName": name, "pool": pool},
    }


def load_classes(files: Sequence[Path]) -> list[Object]:
    """The DeviceClasses in these files; without files the shipped ones. Raises ConfigError."""
    shipped = PACKAGE_ROOT / "deviceclasses"
    chosen = list(files) or sorted(shipped.glob("*.yaml"))
    if not chosen:
        raise ConfigError(f"there are no device classes in {shipped}", "name files with --classes")
    found = []
    for path in chosen:
        try:
            documents = load_all_strictly(path.read_bytes())
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}", "check --classes") from error
        except yaml.YAMLError as error:
            raise ConfigError(f"{path} is not YAML: {error}", "check --classes") from error
        found += [one for one in documents if isinstance(one, dict) and one.get("kind") == "DeviceClass"]
    return found
