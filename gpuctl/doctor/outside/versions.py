"""Checks of versions: the API server, its API and feature gates, kubelets and container runtimes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpuctl.doctor.check import Check, Finding, counted, fail, ok, skipped, warn
from gpuctl.doctor.outside.probes import GATES
from gpuctl.doctor.outside.seen import ClusterSeen, Object, Unread, name_of

FLOOR = (1, 36)
"""The oldest version of Kubernetes that is supported."""

_RESOURCES = ("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices")
HEALTH_GATE = "ResourceHealthStatus"
_LOCKED_GATES = ("DynamicResourceAllocation", "DRAResourceClaimDeviceStatus")
"""Gates that a server can have off only where it is old, or by hand."""

_SERVE_V1 = "use Kubernetes 1.36 or newer, and do not switch off resource.k8s.io/v1 (--runtime-config)"
_NO_NODE = "no node publishes GPUs, or says by a label that it has one"
_NUMBERS = re.compile(r"v?(\d+)\.(\d+)")
_RUNTIMES = {"containerd": (1, 7), "cri-o": (1, 23)}
"""The first versions that know CDI."""

_CDI_BY_DEFAULT = (2, 0)
"""From this version on containerd reads CDI specs by default."""


def parsed(version: str) -> tuple[int, int] | None:
    """Major and minor of a version, None where it is none."""
    found = _NUMBERS.match(version)
    return (int(found[1]), int(found[2])) if found else None


def _server_version(seen: ClusterSeen) -> Finding:
    if isinstance(seen.server_version, Unread):
        return skipped(seen.server_version.why)
    text = str(seen.server_version.get("gitVersion", ""))
    number = parsed(text)
    floor = ".".join(map(str, FLOOR))
    if number is None:
        return skipped(f"the API server names no version: {text!r}")
    if number < FLOOR:
        return fail(
            f"the API server is {text}, and {floor} is the oldest version that is supported",
            f"upgrade the cluster to {floor} or newer",
        )
    return ok(f"API server {text}, gpuctl {seen.gpuctl_version}")


def _kubelets(seen: ClusterSeen) -> Finding:
    if isinstance(seen.nodes, Unread):
        return skipped(seen.nodes.why)
    if not _gpu_nodes(seen):
        return skipped(_NO_NODE)
    old = [
        f"{name_of(node)}: kubelet {told}"
        for node in _gpu_nodes(seen)
        if (number := parsed(told := _node_info(node, "kubeletVersion"))) is not None and number < FLOOR
    ]
    if old:
        return fail(
            f"{counted(len(old), 'node')} with GPUs {'has a kubelet' if len(old) == 1 else 'have kubelets'} "
            f"older than {'.'.join(map(str, FLOOR))}",
            "upgrade these nodes; the kubelet may not be older than what is supported",
            old,
        )
    return ok(f"kubelets of {counted(len(_gpu_nodes(seen)), 'node')} with GPUs are new enough")


def _runtimes(seen: ClusterSeen) -> Finding:
    if isinstance(seen.nodes, Unread):
        return skipped(seen.nodes.why)
    nodes = _gpu_nodes(seen)
    if not nodes:
        return skipped(_NO_NODE)
    judged = [(name_of(node), _node_info(node, "containerRuntimeVersion")) for node in nodes]
    unfit = [f"{name}: {told or 'not told'}" for name, told in judged if _knows_cdi(told) is False]
    if unfit:
        return fail(
            f"{counted(len(unfit), 'container runtime')} without CDI, by which containers get GPUs",
            "use containerd 2.0 or newer, or CRI-O 1.23 or newer, on these nodes",
            unfit,
        )
    asks = [f"{name}: {told}" for name, told in judged if _knows_cdi(told) is None]
    if asks:
        return warn(
            f"{counted(len(asks), 'container runtime')} may have CDI off",
            "containerd 1.7 needs enable_cdi = true; `gpuctl doctor NODE` looks at its configuration",
            asks,
        )
    return ok(f"container runtimes of {counted(len(nodes), 'node')} with GPUs read CDI specs by default")


def _knows_cdi(told: str) -> bool | None:
    """Whether a runtime such as ``containerd://2.1.4`` reads CDI specs; None where that is not known."""
    kind, _, version = told.partition("://")
    first, number = _RUNTIMES.get(kind), parsed(version)
    if first is None or number is None:
        return False if kind == "docker" else None
    if number < first:
        return False
    return True if kind != "containerd" or number >= _CDI_BY_DEFAULT else None


def _api(seen: ClusterSeen) -> Finding:
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


def _dropped_fields(seen: ClusterSeen) -> Finding:
    if isinstance(seen.dropped_fields, Unread):
        return skipped(seen.dropped_fields.why)
    if not seen.dropped_fields:
        return ok("slices are stored with counters, shared devices and taints")
    gates = sorted({GATES[field] for field in seen.dropped_fields})
    return fail(
        f"the API server stores slices without {', '.join(sorted(seen.dropped_fields))}",
        f"enable the feature gate {', '.join(gates)} in the API server, the scheduler and the controllers",
    )


def _feature_gates(seen: ClusterSeen) -> Finding:
    if isinstance(seen.features, Unread):
        return skipped(seen.features.why)
    wanted = (*sorted(set(GATES.values())), *_LOCKED_GATES, HEALTH_GATE)
    known = {name: seen.features[name] for name in wanted if name in seen.features}
    if not known:
        return skipped("the metrics of the API server tell of none of the feature gates")
    off = [name for name, on in known.items() if not on]
    if [name for name in off if name != HEALTH_GATE]:
        return fail(
            f"the API server runs with {', '.join(off)} off",
            "enable it in the API server, the scheduler, the controllers and the kubelets",
        )
    if off:
        return warn(
            f"the API server runs with {HEALTH_GATE} off: the status of pods tells nothing of GPUs",
            "enable it in the API server and in the kubelets",
        )
    return ok(f"on in the API server: {', '.join(known)}; of others it is not known")


def _gpu_nodes(seen: ClusterSeen) -> list[Object]:
    """The nodes that publish something of this driver, or that say that they have GPUs."""
    from gpuctl.doctor.outside.publishing import has_gpu_label, publishing_nodes

    publishing = publishing_nodes(seen)
    nodes: Iterable[Object] = () if isinstance(seen.nodes, Unread) else seen.nodes
    return [node for node in nodes if name_of(node) in publishing or has_gpu_label(node)]


def _node_info(node: Object, field: str) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get(field) or "")


VERSION_CHECKS: tuple[Check[ClusterSeen], ...] = (
    Check(
        "server-version",
        "the version of the API server",
        "it is older than 1.36",
        _server_version,
    ),
    Check(
        "kubelets",
        "the kubelets of nodes with GPUs",
        "one is older than 1.36",
        _kubelets,
    ),
    Check(
        "runtimes",
        "the container runtimes of nodes with GPUs, as their kubelets tell",
        "one knows no CDI; warns where CDI may be off",
        _runtimes,
    ),
    Check(
        "api",
        "the versions and resources of resource.k8s.io",
        "v1 or one of its resources is not served",
        _api,
    ),
    Check(
        "slice-fields",
        "what becomes of a slice in a dry run",
        "the API server leaves out counters, shared devices or taints",
        _dropped_fields,
    ),
    Check(
        "feature-gates",
        "`kubernetes_feature_enabled` in the metrics of the API server that answers",
        "a gate is off that the driver needs; warns for ResourceHealthStatus",
        _feature_gates,
    ),
)
