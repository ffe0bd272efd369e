"""Checks versions: the API server, its API and feature gates, kubelets and container runtimes."""

from __future__ import annotations

import re

from gpuctl.cli.cluster import Object
from gpuctl.cli.unread import Unread
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, skipped, warn
from gpuctl.doctor.outside.probes import GATES
from gpuctl.doctor.outside.publishing import has_gpu_label, publishing_nodes
from gpuctl.doctor.outside.seen import ClusterSeen, name_of

FLOOR = (1, 36)
"""The oldest version of Kubernetes that is supported."""

_FLOOR = ".".join(map(str, FLOOR))
_RESOURCES = frozenset({"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"})
HEALTH_GATE = "ResourceHealthStatus"
_GATES = {*GATES.values(), "DRAResourceClaimDeviceStatus", HEALTH_GATE}
"""The gates that the driver needs, and that of the health of GPUs in pods.

A gate that is locked on disappears from the metrics some releases later, and no longer matters.
"""

_SERVE_V1 = f"use Kubernetes {_FLOOR} or newer, and do not disable resource.k8s.io/v1 (--runtime-config)"
_NUMBERS = re.compile(r"v?(\d+)\.(\d+)")
_RUNTIMES = {"containerd": (1, 7), "cri-o": (1, 23)}
"""The first versions that know CDI."""

_CDI_BY_DEFAULT = (2, 0)
"""From this version on containerd reads CDI specs by default."""


def parsed(version: str) -> tuple[int, int] | None:
    """Major and minor number of a version; None if the text is not a version."""
    found = _NUMBERS.match(version)
    return (int(found[1]), int(found[2])) if found else None


@check
def _server_version(seen: ClusterSeen) -> Finding:
    """The version of the API server.

    Fails if it is older than 1.36.
    """
    text = str(require(seen.server_version).get("gitVersion", ""))
    number = parsed(text)
    if number is None:
        return skipped(f"the API server returned no version: {text!r}")
    if number < FLOOR:
        return fail(
            f"the API server is {text}; the oldest supported version is {_FLOOR}",
            f"upgrade the cluster to {_FLOOR} or newer",
        )
    return ok(f"API server {text}, gpuctl {seen.gpuctl_version}")


@check
def _nodes(seen: ClusterSeen) -> Finding:
    """The versions of kubelets on GPU nodes, and of the container runtimes that they report.

    Fails if a kubelet is older than 1.36, or a runtime does not support CDI; warns if CDI may be off.
    """
    publishing = publishing_nodes(seen)
    nodes = require(
        [one for one in require(seen.nodes) if name_of(one) in publishing or has_gpu_label(one)],
        "no node publishes GPUs or has a GPU label",
    )
    kubelets = [(name_of(node), _node_info(node, "kubeletVersion")) for node in nodes]
    runtimes = [(name_of(node), _node_info(node, "containerRuntimeVersion")) for node in nodes]
    unfit = [f"{name}: kubelet {version}" for name, version in kubelets if (parsed(version) or FLOOR) < FLOOR]
    unfit += [
        f"{name}: container runtime {one or 'not reported'}, without CDI, which gives containers their GPUs"
        for name, one in runtimes
        if _knows_cdi(one) is False
    ]
    if unfit:
        return fail(
            f"{counted(len(unfit), 'kubelet or runtime', 'kubelets or runtimes')} too old for this driver",
            f"use Kubernetes {_FLOOR}, containerd 2.0 or CRI-O 1.23, or newer, on these nodes",
            unfit,
        )
    unclear = [f"{name}: {one}" for name, one in runtimes if _knows_cdi(one) is None]
    if unclear:
        return warn(
            f"CDI may be off in {counted(len(unclear), 'container runtime')}",
            "containerd 1.7 needs enable_cdi = true; `gpuctl doctor NODE` checks its configuration",
            unclear,
        )
    return ok(f"kubelets and container runtimes of {counted(len(nodes), 'node')} with GPUs are new enough")


def _node_info(node: Object, field: str) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get(field) or "")


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


@check
def _api(seen: ClusterSeen) -> Finding:
    """The resources of resource.k8s.io/v1 that the API server has.

    Fails if it lacks one, or the version.
    """
    resources = seen.dra_resources
    if isinstance(resources, Unread):
        return fail(f"resource.k8s.io/v1 is not served: {resources.why}", _SERVE_V1)
    if missing := sorted(_RESOURCES - set(resources)):
        return fail(f"resource.k8s.io/v1 is served without {', '.join(missing)}", _SERVE_V1)
    return ok("resource.k8s.io/v1 is served")


@check
def _feature_gates(seen: ClusterSeen) -> Finding:
    """The feature gates of the API server: `kubernetes_feature_enabled` in its metrics, and a dry run.

    Fails if one that the driver needs is off, or if counters, shared devices or taints of a slice would not
    be stored; only warns about ResourceHealthStatus.
    """
    features = {} if isinstance(seen.features, Unread) else seen.features
    dropped = () if isinstance(seen.dropped_fields, Unread) else sorted(seen.dropped_fields)
    off = {name for name in _GATES if features.get(name) is False} | {GATES[field] for field in dropped}
    if needed := sorted(off - {HEALTH_GATE}):
        return fail(
            f"the API server runs with {', '.join(needed)} off",
            "enable it in the API server, the scheduler, the controllers and the kubelets",
            [f"it stores slices without {field}" for field in dropped],
        )
    if off:
        return warn(
            f"the API server runs with {HEALTH_GATE} off: the status of pods says nothing of sick GPUs",
            "enable it in the API server and in the kubelets",
        )
    require(seen.dropped_fields)
    known = ", ".join(sorted(name for name in _GATES if name in features)) or "unknown"
    return ok(
        f"the API server keeps counters, shared devices and taints of slices; gates that are on: {known}"
    )


VERSION_CHECKS = (_server_version, _nodes, _api, _feature_gates)
