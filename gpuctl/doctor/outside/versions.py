"""Checks versions: the API server, its API and feature gates, kubelets and container runtimes."""

from __future__ import annotations

import re

from gpuctl.cli.cluster import Object
from gpuctl.cli.unread import Unread, items_of
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, skipped, warn
from gpuctl.doctor.outside.probes import GATES
from gpuctl.doctor.outside.publishing import has_gpu_label, publishing_nodes
from gpuctl.doctor.outside.seen import ClusterSeen, name_of

FLOOR = (1, 36)
"""The oldest version of Kubernetes that is supported."""

_RESOURCES = ("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices")
HEALTH_GATE = "ResourceHealthStatus"
_LOCKED_GATES = ("DynamicResourceAllocation", "DRAResourceClaimDeviceStatus")
"""Gates that are on by default, and that newer servers do not let anybody switch off."""

_SERVE_V1 = "use Kubernetes 1.36 or newer, and do not disable resource.k8s.io/v1 (--runtime-config)"
_NO_NODE = "no node publishes GPUs or has a GPU label"
_NUMBERS = re.compile(r"v?(\d+)\.(\d+)")
_RUNTIMES = {"containerd": (1, 7), "cri-o": (1, 23)}
"""The first versions that know CDI."""

_CDI_BY_DEFAULT = (2, 0)
"""From this version on containerd reads CDI specs by default."""


def parsed(version: str) -> tuple[int, int] | None:
    """Major and minor number of a version; None if the text is not a version."""
    found = _NUMBERS.match(version)
    return (int(found[1]), int(found[2])) if found else None


@check(
    "server-version",
    "the version of the API server",
    "it is older than 1.36",
)
def _server_version(seen: ClusterSeen) -> Finding:
    text = str(require(seen.server_version).get("gitVersion", ""))
    number = parsed(text)
    floor = ".".join(map(str, FLOOR))
    if number is None:
        return skipped(f"the API server returned no version: {text!r}")
    if number < FLOOR:
        return fail(
            f"the API server is {text}; the oldest supported version is {floor}",
            f"upgrade the cluster to {floor} or newer",
        )
    return ok(f"API server {text}, gpuctl {seen.gpuctl_version}")


@check(
    "kubelets",
    "the versions of kubelets on GPU nodes",
    "one is older than 1.36",
)
def _kubelets(seen: ClusterSeen) -> Finding:
    require(seen.nodes)
    nodes = _gpu_nodes(seen)
    if not nodes:
        return skipped(_NO_NODE)
    versions = [(name_of(node), _node_info(node, "kubeletVersion")) for node in nodes]
    old = [f"{name}: kubelet {version}" for name, version in versions if (parsed(version) or FLOOR) < FLOOR]
    if old:
        return fail(
            f"{counted(len(old), 'node')} with GPUs {'has a kubelet' if len(old) == 1 else 'have kubelets'} "
            f"older than {'.'.join(map(str, FLOOR))}",
            "upgrade these nodes: their kubelets must be of a supported version",
            old,
        )
    return ok(f"kubelets of {counted(len(nodes), 'node')} with GPUs are new enough")


@check(
    "runtimes",
    "the container runtimes that kubelets on GPU nodes report",
    "one does not support CDI; warns if CDI may be off",
)
def _runtimes(seen: ClusterSeen) -> Finding:
    require(seen.nodes)
    nodes = _gpu_nodes(seen)
    if not nodes:
        return skipped(_NO_NODE)
    runtimes = [(name_of(node), _node_info(node, "containerRuntimeVersion")) for node in nodes]
    unfit = [f"{name}: {one or 'not reported'}" for name, one in runtimes if _knows_cdi(one) is False]
    if unfit:
        return fail(
            f"{counted(len(unfit), 'container runtime')} without CDI, which gives containers their GPUs",
            "use containerd 2.0 or newer, or CRI-O 1.23 or newer, on these nodes",
            unfit,
        )
    unclear = [f"{name}: {one}" for name, one in runtimes if _knows_cdi(one) is None]
    if unclear:
        return warn(
            f"CDI may be off in {counted(len(unclear), 'container runtime')}",
            "containerd 1.7 needs enable_cdi = true; `gpuctl doctor NODE` checks its configuration",
            unclear,
        )
    return ok(f"container runtimes of {counted(len(nodes), 'node')} with GPUs read CDI specs by default")


def _knows_cdi(runtime: str) -> bool | None:
    """Whether a runtime such as ``containerd://2.1.4`` reads CDI specs; None if its configuration decides."""
    kind, _, version = runtime.partition("://")
    first, number = _RUNTIMES.get(kind), parsed(version)
    # cri-dockerd calls itself docker, and hands no CDI devices on.
    if first is None or number is None:
        return False if kind == "docker" else None
    if number < first:
        return False
    return True if kind != "containerd" or number >= _CDI_BY_DEFAULT else None


@check(
    "api",
    "the served versions and resources of resource.k8s.io",
    "v1 or one of its resources is not served",
)
def _api(seen: ClusterSeen) -> Finding:
    # A server can serve the group without this version, and the version without one of its resources.
    versions, resources = seen.dra_versions, seen.dra_resources
    if isinstance(versions, Unread):
        return fail(f"resource.k8s.io/v1 is not served: {versions.why}", _SERVE_V1)
    if isinstance(resources, Unread):
        return fail(f"resource.k8s.io/v1 is not served: {resources.why}", _SERVE_V1)
    missing = sorted(set(_RESOURCES) - set(resources))
    if "v1" not in versions or missing:
        what = ", ".join(missing) or "v1"
        return fail(f"resource.k8s.io serves {', '.join(versions)} without {what}", _SERVE_V1)
    return ok(f"resource.k8s.io serves {', '.join(versions)}")


@check(
    "slice-fields",
    "which fields the API server keeps of a slice that is created in a dry run",
    "it drops counters, shared devices or taints",
)
def _dropped_fields(seen: ClusterSeen) -> Finding:
    dropped_fields = require(seen.dropped_fields)
    if not dropped_fields:
        return ok("the API server keeps counters, shared devices and taints of slices")
    gates = sorted({GATES[field] for field in dropped_fields})
    return fail(
        f"the API server stores slices without {', '.join(sorted(dropped_fields))}",
        f"enable the feature gate {', '.join(gates)} in the API server, the scheduler and the controllers",
    )


@check(
    "feature-gates",
    "`kubernetes_feature_enabled` in the metrics of the API server that answers",
    "a feature gate that the driver needs is off; only warns about ResourceHealthStatus",
)
def _feature_gates(seen: ClusterSeen) -> Finding:
    features = require(seen.features)
    wanted = (*sorted(set(GATES.values())), *_LOCKED_GATES, HEALTH_GATE)
    # A gate that is locked on disappears from the metrics some releases later, and no longer matters.
    known = {name: features[name] for name in wanted if name in features}
    if not known:
        return skipped("the metrics of the API server do not list the feature gates")
    off = [name for name, on in known.items() if not on]
    if [name for name in off if name != HEALTH_GATE]:
        return fail(
            f"the API server runs with {', '.join(off)} off",
            "enable it in the API server, the scheduler, the controllers and the kubelets",
        )
    if off:
        return warn(
            f"the API server runs with {HEALTH_GATE} off: the status of pods does not show the "
            "health of GPUs",
            "enable it in the API server and in the kubelets",
        )
    return ok(f"on in the API server: {', '.join(known)}; the state of others is unknown")


def _gpu_nodes(seen: ClusterSeen) -> list[Object]:
    """The nodes that publish something of this driver, or have the label of a GPU."""
    publishing = publishing_nodes(seen)
    return [node for node in items_of(seen.nodes) if name_of(node) in publishing or has_gpu_label(node)]


def _node_info(node: Object, field: str) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get(field) or "")


VERSION_CHECKS = (_server_version, _kubelets, _runtimes, _api, _dropped_fields, _feature_gates)
