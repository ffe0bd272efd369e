"""Checks what nodes publish: slices against nodes, pools, names of pools, taints."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from driver.devices.names import DRIVER_NAME, pool_name
from gpuctl.cli.cluster import Object
from gpuctl.cli.unread import items_of
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, warn
from gpuctl.doctor.outside.programs import ON_NODES, Program, programs_of, workload_programs
from gpuctl.doctor.outside.seen import ClusterSeen, name_of, namespace_of
from gpuctl.fleet.devices import meaning, taints_of
from gpuctl.fleet.holders import allocated, node_of_pool
from gpuctl.fleet.pods import has_ended, why_not_ready
from kubernetes_rules.pool_generations import is_complete, newest_slices
from kubernetes_rules.selectors import exclusion, read_node

NO_SLICES = "this driver has no slices"
CORRECT_DAEMON_SET = (
    "correct the DaemonSet or the node's labels, or put the value into the chart's values: `helm upgrade` "
    "leaves alone what was added by hand"
)
"""What to do where a DaemonSet excludes a node."""

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


@check
def _published(seen: ClusterSeen) -> Finding:
    """The slices of GPU nodes, which have labels of feature discovery, the driver's pods, or devices in
    claims.

    Fails if a GPU node, or every node, publishes nothing, or if there are slices of a node that does not
    exist or has no plugin; warns about nodes with the plugin but no label.
    """
    require(seen.slices)
    nodes, publishing = require(seen.nodes), publishing_nodes(seen)
    with_plugin = _nodes_with("kubeletplugin", seen)
    should: defaultdict[str, list[str]] = defaultdict(list)
    for name, why in _should_publish(seen, nodes):
        if name not in publishing:
            should[name].append(why)
    if should:
        kept_away = {name: excluding(seen, name) for name in should}
        look = "check that the driver's pods run there, then see their logs and `gpuctl doctor NODE`"
        return fail(
            f"{counted(len(should), 'node publishes', 'nodes publish')} nothing, but should",
            f"{CORRECT_DAEMON_SET}; else {look}" if any(kept_away.values()) else look,
            [
                f"{name}: {', '.join(dict.fromkeys((*reasons, *kept_away[name])))}"
                for name, reasons in sorted(should.items())
            ],
        )
    if not publishing:
        return fail(
            "no node publishes GPUs",
            "check that the driver's pods run on the nodes with GPUs: those that have one of "
            f"the labels {', '.join(LABELS)}, or all nodes with the chart's value gpuNodes: all",
        )
    # A slice is owned by its Node, and Kubernetes deletes it with the Node: none should be left.
    left = dict.fromkeys(publishing - {name_of(node) for node in nodes}, "it does not exist")
    # Without any pod of the plugin it may run outside of pods.
    left = dict.fromkeys(publishing - with_plugin if with_plugin else (), "no plugin runs there") | left
    if left:
        kept_away = {name: excluding(seen, name) for name in left}
        again = "let the driver's DaemonSets run there again (labels, taints, nodeSelector)"
        return fail(
            f"{counted(len(left), 'node')} with slices, where nobody can give pods their GPUs",
            f"{CORRECT_DAEMON_SET if any(kept_away.values()) else again}; or delete the "
            f"slices: kubectl delete resourceslices --field-selector spec.driver={DRIVER_NAME},"
            "spec.nodeName=NODE",
            [f"{name}: {', '.join((why, *kept_away[name]))}" for name, why in sorted(left.items())],
        )
    idle = sorted(with_plugin - publishing)
    if idle:
        return warn(
            f"{counted(len(idle), 'node')} with the plugin, but without slices and without a GPU label",
            "nothing, if they have no GPU; else see the controller's log there",
            idle,
        )
    return ok(f"{counted(len(publishing), 'node publishes GPUs', 'nodes publish GPUs')}")


def excluding(seen: ClusterSeen, node: str) -> list[str]:
    """What keeps the driver's DaemonSets from a node, by their nodeSelector or required node affinity."""
    return [
        f"DaemonSet {namespace_of(one)}/{name_of(one)} excludes it: {why}"
        for stored in items_of(seen.nodes)
        if name_of(stored) == node
        for one in items_of(seen.daemon_sets)
        if workload_programs(one) and (why := exclusion(one["spec"]["template"]["spec"], read_node(stored)))
    ]


def _should_publish(seen: ClusterSeen, nodes: Iterable[Object]) -> Iterator[tuple[str, str]]:
    """The nodes that are known to have GPUs, each with how that is known."""
    yield from ((name_of(node), "it has a GPU label") for node in nodes if has_gpu_label(node))
    with_controller = _nodes_with("controller", seen)
    for pod in items_of(seen.pods):
        node, programs = pod["spec"].get("nodeName"), programs_of(pod["spec"])
        # On a node without a GPU the controller is ready.
        if "controller" in programs and (why := why_not_ready(pod)):
            yield str(node or "no node"), f"its controller is not ready ({why})"
        elif node and programs.keys() & ON_NODES and node not in with_controller and not has_ended(pod):
            yield str(node), f"gpu-dra-{next(iter(programs))} runs there without gpu-dra-controller"
    for claim in items_of(seen.claims):
        for held in allocated(claim):
            yield node_of_pool(held.pool), f"claim {held.claim} has a device there"


def _nodes_with(program: Program, seen: ClusterSeen) -> set[str]:
    return {
        str(pod["spec"]["nodeName"])
        for pod in items_of(seen.pods)
        if pod["spec"].get("nodeName") and program in programs_of(pod["spec"]) and not has_ended(pod)
    }


@check
def _pools(seen: ClusterSeen) -> Finding:
    """The pools of slices: their names, and whether their newest generation is complete.

    Fails if slices are missing, or another driver with the same name publishes; warns if a pool of another
    driver has the name of ours.
    """
    slices = require(seen.slices)
    # Only the newest generation of a pool counts, and nothing is allocated until all of its slices are there.
    newest = require(newest_slices(own_slices(seen)), NO_SLICES)
    # Another driver of the same name cannot be seen by its slices alone, but its pools have other names.
    places = {(str(one["spec"]["pool"]["name"]), one["spec"].get("nodeName")) for one in own_slices(seen)}
    foreign = [
        f"{name}, on {node or 'no particular node'}" for name, node in places if name != pool_name(str(node))
    ]
    if foreign:
        return fail(
            f"{counted(len(foreign), 'pool')} of {DRIVER_NAME} that this driver does not publish: "
            "another driver with that name is installed",
            "a node can have only one driver of this name: remove NVIDIA's DRA driver from these nodes",
            sorted(foreign),
        )
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
    others = {(str(one["spec"]["pool"]["name"]), one["spec"].get("driver")) for one in slices}
    names = {name for name, _ in places}
    twins = [f"{name}: also a pool of {of}" for name, of in others if of != DRIVER_NAME and name in names]
    if twins:
        return warn(
            f"{counted(len(twins), 'pool')} of another driver with the name of one of ours",
            "schedulers up to 1.36.3 mix up the counters of such pools: rename the other pool",
            sorted(twins),
        )
    return ok(
        f"{counted(len(newest), 'pool is', 'pools are')} complete, and no other driver uses their names"
    )


@check
def _taints(seen: ClusterSeen) -> Finding:
    """The taints of devices, and what each means.

    Never fails; warns if there are any.
    """
    require(seen.slices)
    devices = require(list(current_devices(seen)), NO_SLICES)
    # A GPU is published as many devices, which mostly have the same taints: they are counted together.
    found = Counter((taint, node) for node, device in devices for taint in taints_of(device))
    if not found:
        return ok("no device is tainted")
    lines = [
        f"{node}: {taint}, {counted(number, 'device')}: {meaning(taint)}"
        for (taint, node), number in sorted(found.items(), key=lambda one: (str(one[0][0]), one[0][1]))
    ]
    return warn(
        f"{counted(sum(bool(device.get('taints')) for _, device in devices), 'device')} with taints",
        "each line says what to do; `gpuctl status` names the devices",
        lines,
    )


PUBLISHING_CHECKS = (_published, _pools, _taints)
