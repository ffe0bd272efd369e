"""Joins what claims hold, from slices and claims, with what they use, from the kubelet plugins' metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from driver.errors import ApiError
from driver.kube.client import KubeClient
from gpuctl.cli.cluster import ClusterView
from gpuctl.cli.failures import error_text
from gpuctl.doctor.outside.programs import flag_value, programs_of
from gpuctl.fleet.gpus import GpuState, Holding
from gpuctl.fleet.nodes import NodeView

Object = Mapping[str, Any]

PODS = "app.kubernetes.io/name=gpu-dra-kubeletplugin"
"""The label that the chart and the manifests give to the plugin's pods."""

_FLAG = "--metrics-addr"
_AT_ONCE = 16
"""Requests at a time."""

_TIMEOUT_SECONDS = 5.0

By = Literal["claim", "namespace", "class", "node"]

ALLOCATED = "gpu_dra_device_memory_allocated_bytes"
USED = "gpu_dra_device_memory_used_bytes"
BUSY = "gpu_dra_device_utilization_ratio"
_SERIES = frozenset({ALLOCATED, USED, BUSY})

Key = tuple[str, str, str, str]
"""A claim's namespace, its name, a device of it, and its share ID, empty if the device is not shared."""

Measured = Mapping[tuple[str, Key], float]


@dataclass(frozen=True, slots=True)
class Lacking:
    """A node whose metrics could not be read."""

    node: str
    why: str


def scrape(
    client: KubeClient, view: ClusterView, nodes: Sequence[str]
) -> tuple[dict[str, Measured], list[Lacking]]:
    """The metrics of the plugins of these nodes, by node, and the nodes without metrics that can be read.

    It takes the right to list pods, and to get pods/proxy in the namespace of the driver.
    """
    try:
        pods = view.listed("/api/v1/pods", labelSelector=PODS)
    except ApiError as error:
        return {}, [Lacking(node, error_text(error)) for node in nodes]
    # During a rolling update two pods of the plugin may run on a node; the newer one is there to stay.
    newest: dict[str, Object] = {}
    for pod in sorted(pods, key=lambda one: str(one["metadata"].get("creationTimestamp", ""))):
        if (pod.get("status") or {}).get("phase") == "Running":
            newest[str(pod["spec"].get("nodeName"))] = pod
    # Each request waits for the API server, which itself asks the pod.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda node: _ask(client, newest.get(node)), nodes))
    told = list(zip(nodes, answers, strict=True))
    return (
        {node: answer for node, answer in told if not isinstance(answer, str)},
        [Lacking(node, answer) for node, answer in told if isinstance(answer, str)],
    )


def metrics_path(pod: Object) -> str | None:
    """The path at which the API server proxies the metrics of a plugin's pod; None if it serves none."""
    container = programs_of(pod["spec"]).get("kubeletplugin") or {}
    words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
    port = (flag_value(words, _FLAG) or "").rpartition(":")[2]
    if not port.isdecimal():
        return None
    namespace, name = (quote(str(pod["metadata"][key]), safe="") for key in ("namespace", "name"))
    return f"/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics"


def _ask(client: KubeClient, pod: Object | None) -> Measured | str:
    """What the plugin has measured, or why that is not known."""
    if pod is None:
        return "no pod of the kubelet plugin runs there"
    path = metrics_path(pod)
    if path is None:
        return f"its plugin serves no metrics: set metrics.enabled of the chart, or {_FLAG}"
    try:
        return read_metrics(client.text(path, timeout_seconds=_TIMEOUT_SECONDS))
    except ApiError as error:
        return error_text(error)
    except ValueError as error:
        return f"its metrics cannot be read: {error}"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a claim has of a GPU and uses of it; None for what is not known.

    ``part`` is how much of the GPU it has, ``busy`` is how busy its device was, both from 0 to 1.
    """

    node: str
    gpu: str
    claim: str
    pods: tuple[str, ...]
    device: str
    tier: str
    part: float
    device_class: str | None = None
    allocated_bytes: int | None = None
    used_bytes: int | None = None
    busy: float | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Several usages together; the sums are of those that are known.

    The use of ``untold`` devices is not known; ``measured_bytes`` is the memory that the others have.
    ``gpus`` is the number of GPUs, parts added up; ``busy`` is the mean, weighted by these parts.
    """

    name: str
    devices: int
    gpus: float
    allocated_bytes: int
    measured_bytes: int
    used_bytes: int | None
    busy: float | None
    untold: int


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """What `gpuctl top` prints: how much claims use of what they hold. Unknown values are absent."""

    by: By
    groups: tuple[Group, ...]
    devices: tuple[Usage, ...]
    lacking: tuple[Lacking, ...]


def read_metrics(text: str) -> dict[tuple[str, Key], float]:
    """The series about devices of claims; raises ValueError if the text is not in Prometheus' format."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[tuple[str, Key], float] = {}
    for family in text_string_to_metric_families(text):
        if family.name in _SERIES:
            for sample in family.samples:
                names = ("claim_namespace", "claim", "device", "share_id")
                namespace, claim, device, share = (sample.labels.get(name, "") for name in names)
                found[sample.name, (namespace, claim, device, share)] = sample.value
    return found


def usages(view: NodeView, measured: Measured) -> list[Usage]:
    """Everything that claims hold of a node's GPUs; a device of several GPUs is listed with its first GPU."""
    # From the status of claims, for plugins that serve no metrics.
    reported = {
        (share.claim, share.device, share.share_id or ""): share.used_bytes
        for gpu in view.state.memory
        for share in gpu.shares
    }
    found: dict[Key, Usage] = {}
    for gpu in view.gpus:
        for one in gpu.holdings:
            namespace, _, name = one.claim.partition("/")
            key = (namespace, name, one.device, one.share_id or "")
            if not one.admin_access and key not in found:
                by_status = reported.get((one.claim, one.device, one.share_id or ""))
                found[key] = _usage(gpu, one, key, measured, by_status)
    return list(found.values())


def _usage(gpu: GpuState, one: Holding, key: Key, measured: Measured, by_status: int | None) -> Usage:
    allocated, used = measured.get((ALLOCATED, key)), measured.get((USED, key))
    return Usage(
        node=gpu.node,
        gpu=gpu.label,
        claim=one.claim,
        pods=one.pods,
        device=one.device,
        tier=one.tier,
        part=one.part,
        device_class=one.device_class,
        allocated_bytes=one.memory_bytes if allocated is None else int(allocated),
        used_bytes=by_status if used is None else int(used),
        busy=measured.get((BUSY, key)),
    )


_NAMES: Mapping[By, Callable[[Usage], str]] = {
    "claim": lambda one: one.claim,
    "namespace": lambda one: one.claim.partition("/")[0],
    "class": lambda one: one.device_class or "(unknown class)",
    "node": lambda one: one.node,
}


def grouped(found: Iterable[Usage], by: By) -> list[Group]:
    """The usages in groups; the largest use comes first, then the largest holding."""
    members: dict[str, list[Usage]] = {}
    for one in found:
        members.setdefault(_NAMES[by](one), []).append(one)
    groups = [_group(name, ones) for name, ones in members.items()]
    return sorted(groups, key=lambda one: (-(one.used_bytes or 0), -one.allocated_bytes, one.name))


def by_use(found: Iterable[Usage]) -> list[Usage]:
    """The usages, the largest use first, then the largest holding."""
    return sorted(
        found,
        key=lambda one: (
            -(one.used_bytes or 0),
            -(one.allocated_bytes or 0),
            one.claim,
            one.node,
            one.device,
        ),
    )


def _group(name: str, ones: Sequence[Usage]) -> Group:
    used = [one.used_bytes for one in ones if one.used_bytes is not None]
    busy = [(one.busy, one.part) for one in ones if one.busy is not None]
    weight = sum(part for _, part in busy)
    return Group(
        name=name,
        devices=len(ones),
        gpus=round(sum(one.part for one in ones), 3),
        allocated_bytes=sum(one.allocated_bytes or 0 for one in ones),
        measured_bytes=sum(one.allocated_bytes or 0 for one in ones if one.used_bytes is not None),
        used_bytes=sum(used) if used else None,
        busy=round(sum(value * part for value, part in busy) / weight, 4) if weight else None,
        untold=len(ones) - len(used),
    )
