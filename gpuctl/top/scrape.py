"""Reads the metrics of the kubelet plugins through the API server, which hands requests on to pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from driver.errors import ApiError
from gpuctl.cli.failures import told
from gpuctl.doctor.outside.programs import programs_of

if TYPE_CHECKING:
    from driver.kube.client import KubeClient
    from gpuctl.cli.cluster_view import ClusterView

Object = Mapping[str, Any]

PODS = "app.kubernetes.io/name=gpu-dra-kubeletplugin"
"""The label that the chart and the manifests give to the plugin's pods."""

_FLAG = "--metrics-addr"
_AT_ONCE = 16
_TIMEOUT_SECONDS = 5.0
NO_POD = "no pod of the kubelet plugin runs there"
NO_METRICS = f"its plugin serves no metrics: set metrics.enabled of the chart, or {_FLAG}"


@dataclass(frozen=True, slots=True)
class Scraped:
    """What the plugin of a node answered, or why it told nothing."""

    node: str
    text: str | None = None
    lacking: str | None = None


def scrape(client: KubeClient, view: ClusterView, nodes: Iterable[str]) -> list[Scraped]:
    """Ask the plugins of these nodes, some at a time; raises nothing for one that cannot be asked.

    It takes the right to list pods, and to get pods/proxy in the namespace of the driver.
    """
    try:
        pods = view.listed("/api/v1/pods", labelSelector=PODS)
    except ApiError as error:
        return [Scraped(node, lacking=told(error)) for node in nodes]
    newest: dict[str, Object] = {}
    for pod in sorted(pods, key=lambda one: str(one["metadata"].get("creationTimestamp", ""))):
        if (pod.get("status") or {}).get("phase") == "Running":
            newest[str(pod["spec"].get("nodeName"))] = pod
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda node: _ask(client, node, newest.get(node)), nodes))


def metrics_path(pod: Object) -> str | None:
    """Where the API server hands out the metrics of a plugin's pod; None where it serves none."""
    container = programs_of(pod["spec"]).get("kubeletplugin") or {}
    words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
    for number, word in enumerate(words):
        flag, _, value = word.partition("=")
        address = value or (words[number + 1] if number + 1 < len(words) else "")
        port = address.rpartition(":")[2]
        if flag == _FLAG and port.isdecimal():
            namespace, name = (quote(str(pod["metadata"][key]), safe="") for key in ("namespace", "name"))
            return f"/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics"
    return None


def _ask(client: KubeClient, node: str, pod: Object | None) -> Scraped:
    if pod is None:
        return Scraped(node, lacking=NO_POD)
    path = metrics_path(pod)
    if path is None:
        return Scraped(node, lacking=NO_METRICS)
    try:
        return Scraped(node, client.text(path, timeout_seconds=_TIMEOUT_SECONDS))
    except ApiError as error:
        return Scraped(node, lacking=told(error))
