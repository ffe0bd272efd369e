"""Checks what nodes publish: slices against nodes, pools, names of pools, taints."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from driver.devices.names import DRIVER_NAME, pool_name
from gpuctl.cli.cluster import Object
from gpuctl.cli.unread import items_of
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, skipped, warn
from gpuctl.doctor.outside.programs import programs_of
from gpuctl.doctor.outside.seen import ClusterSeen, name_of
from gpuctl.fleet.devices import meaning, taints_of
from gpuctl.fleet.holders import allocated, node_of_pool
from gpuctl.fleet.pods import why_not_ready
from kubernetes_rules.pool_generations import is_complete, newest_slices

NO_SLICES = "this driver has no slices"
LABELS = (
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
)
"""The labels by which NVIDIA's feature discovery and that of Kubernetes mark nodes with a GPU of NVIDIA."""


def has_gpu_label(node: Object) -> bool:
    """Whether a label says that the node has a GPU."""
    labels = node["metadata"].get("labels") or {}
    return any(labels.get(label) == "true" for label in LABELS)


def own_slices(seen: ClusterSeen) -> Iterator[Object]:
    """The slices of this driver."""
    yield from (one for one in items_of(seen.slices) if one["spec"].get("driver") == DRIVER_NAME)


def publishing_nodes(seen: ClusterSeen) -> frozenset[str]:
    """The nodes that have slices of this driver."""
    names = (one["spec"].get("nodeName") for one in own_slices(seen))
    return frozenset(str(name) for name in names if name)


def current_devices(seen: ClusterSeen) -> Iterator[tuple[str, Object]]:
    """The devices in the newest generation of their pool, each with the name of its node."""
    for members in newest_slices(own_slices(seen)).values():
        for one in members:
            for device in one["spec"].get("devices") or ():
                yield str(one["spec"].get("nodeName") or ""), device


@check(
    "published",
    (
        "whether GPU nodes publish slices; GPU nodes are known by labels of feature discovery, by the "
        "driver's pods, and by claims that have devices there"
    ),
    (
        "a GPU node, or every node, publishes nothing, or a node publishes but has no plugin; warns about "
        "nodes with the plugin but no label"
    ),
)
def _published(seen: ClusterSeen) -> Finding:
    require(seen.slices)
    publishing = publishing_nodes(seen)
    should: defaultdict[str, list[str]] = defaultdict(list)
    for name, why in _should_publish(seen, require(seen.nodes)):
        if name not in publishing:
            should[name].append(why)
    if should:
        return fail(
            f"{counted(len(should), 'node publishes', 'nodes publish')} nothing, but should",
            "check that the driver's pods run there, then see their logs and `gpuctl doctor NODE`",
            [f"{name}: {', '.join(dict.fromkeys(reasons))}" for name, reasons in sorted(should.items())],
        )
    if not publishing:
        return fail(
            "no node publishes GPUs",
            "install the driver, and check that its pods run on the nodes with GPUs: those that have one of "
            f"the labels {', '.join(LABELS)}, or all nodes with the chart's value gpuNodes: all",
        )
    with_plugin = _nodes_with_plugin(seen)
    # Without any pod of the plugin it may run outside of pods.
    left = sorted(publishing - with_plugin) if with_plugin else []
    if left:
        return fail(
            f"{counted(len(left), 'node')} with slices has no plugin: its pods cannot get their GPUs"
            if len(left) == 1
            else f"{len(left)} nodes with slices have no plugin: their pods cannot get their GPUs",
            "let the driver's DaemonSets run there again (labels, taints, nodeSelector), or delete the "
            "slices: kubectl delete resourceslices --field-selector spec.nodeName=NODE",
            left,
        )
    idle = sorted(with_plugin - publishing)
    if idle:
        return warn(
            f"{counted(len(idle), 'node')} with the plugin, but without slices and without a GPU label",
            "nothing, if they have no GPU; else see the controller's log there",
            idle,
        )
    return ok(f"{counted(len(publishing), 'node publishes GPUs', 'nodes publish GPUs')}")


def _should_publish(seen: ClusterSeen, nodes: Iterable[Object]) -> Iterator[tuple[str, str]]:
    """The nodes that are known to have GPUs, each with how that is known."""
    yield from ((name_of(node), "it has a GPU label") for node in nodes if has_gpu_label(node))
    for pod in items_of(seen.pods):
        # On a node without a GPU the controller is ready.
        if "controller" in programs_of(pod["spec"]) and (why := why_not_ready(pod)):
            yield str(pod["spec"].get("nodeName") or "no node"), f"its controller is not ready ({why})"
    for claim in items_of(seen.claims):
        for held in allocated(claim):
            yield node_of_pool(held.pool), f"claim {held.claim} has a device there"


def _nodes_with_plugin(seen: ClusterSeen) -> set[str]:
    return {
        str(pod["spec"]["nodeName"])
        for pod in items_of(seen.pods)
        if pod["spec"].get("nodeName") and "kubeletplugin" in programs_of(pod["spec"])
    }


@check(
    "gone-nodes",
    "whether the nodes of all slices exist",
    "a slice belongs to a node that does not exist",
)
def _gone_nodes(seen: ClusterSeen) -> Finding:
    require(seen.slices)
    # A slice is owned by its Node, and Kubernetes deletes it with the Node: none should be left.
    there = {name_of(node) for node in require(seen.nodes)}
    if not publishing_nodes(seen):
        return skipped(NO_SLICES)
    gone = sorted(publishing_nodes(seen) - there)
    if gone:
        return fail(
            f"{counted(len(gone), 'node')} that does not exist has slices"
            if len(gone) == 1
            else f"{len(gone)} nodes that do not exist have slices",
            f"delete them: kubectl delete resourceslices --field-selector spec.driver={DRIVER_NAME},"
            "spec.nodeName=NODE",
            gone,
        )
    return ok("every slice belongs to an existing node")


@check(
    "pools",
    "the newest generation of each pool",
    "some of its slices are missing",
)
def _pools(seen: ClusterSeen) -> Finding:
    require(seen.slices)
    # Only the newest generation of a pool counts, and nothing is allocated until all of its slices are there.
    newest = newest_slices(own_slices(seen))
    if not newest:
        return skipped(NO_SLICES)
    broken = [
        f"{name}: {len(members)} of {members[0]['spec']['pool'].get('resourceSliceCount', 0)} slices of "
        f"generation {members[0]['spec']['pool'].get('generation', 0)}"
        for (_, name), members in sorted(newest.items())
        if not is_complete(members)
    ]
    if broken:
        return fail(
            f"{counted(len(broken), 'pool')} incomplete: none of their devices can be allocated",
            "this passes within seconds while the controller writes; else its log says what it cannot write",
            broken,
        )
    return ok(f"{counted(len(newest), 'pool is', 'pools are')} complete")


@check(
    "pool-names",
    "the names of pools and their drivers",
    "another driver with the same name publishes; warns if a pool of another driver has the name of ours",
)
def _pool_names(seen: ClusterSeen) -> Finding:
    slices = require(seen.slices)
    if next(own_slices(seen), None) is None:
        return skipped(NO_SLICES)
    # Another driver of the same name cannot be seen by its slices alone, but its pools have other names.
    foreign, twins = set(), set()
    pools = {str(one["spec"]["pool"]["name"]) for one in own_slices(seen)}
    for one in slices:
        spec = one["spec"]
        name, node = str(spec["pool"]["name"]), spec.get("nodeName")
        if spec.get("driver") != DRIVER_NAME:
            if name in pools:
                twins.add(f"{name}: also a pool of {spec.get('driver')}")
        elif name != pool_name(str(node)):
            foreign.add(f"{name}, on {node or 'no particular node'}")
    if foreign:
        return fail(
            f"{counted(len(foreign), 'pool')} of {DRIVER_NAME} that this driver does not publish: "
            "another driver with that name is installed",
            "a node can have only one driver of this name: remove NVIDIA's DRA driver from these nodes",
            sorted(foreign),
        )
    if twins:
        return warn(
            f"{counted(len(twins), 'pool')} of another driver with the name of one of ours",
            "schedulers up to 1.36.3 mix up the counters of such pools: rename the other pool",
            sorted(twins),
        )
    return ok("all pools of this driver are its own, and no other driver uses their names")


@check(
    "taints",
    "the taints of devices, and what each means",
    "never; warns if there are any",
)
def _taints(seen: ClusterSeen) -> Finding:
    require(seen.slices)
    if not publishing_nodes(seen):
        return skipped(NO_SLICES)
    # A GPU is published as many devices, which mostly have the same taints: they are counted together.
    found = Counter((taint, node) for node, device in current_devices(seen) for taint in taints_of(device))
    if not found:
        return ok("no device is tainted")
    lines = [
        f"{node}: {taint}, {counted(number, 'device')}: {meaning(taint)}"
        for (taint, node), number in sorted(found.items(), key=lambda one: (str(one[0][0]), one[0][1]))
    ]
    return warn(
        f"{counted(sum(1 for _, one in current_devices(seen) if one.get('taints')), 'device')} with taints",
        "each line says what to do; `gpuctl status` names the devices",
        lines,
    )


PUBLISHING_CHECKS = (_published, _gone_nodes, _pools, _pool_names, _taints)
