"""Reads the last lines of the logs of the driver's pods over the API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

from driver.errors import ApiError
from gpuctl.doctor.outside.programs import ours, programs_of
from gpuctl.doctor.outside.seen import ClusterSeen, Object, Unread, name_of, namespace_of
from gpuctl.gather.archive import Member, safe_part
from gpuctl.gather.masking import masked_text

if TYPE_CHECKING:
    from driver.kube.client import KubeClient

LINES = 2000
MOST_LOG_BYTES = 1 << 20
MOST_PODS = 24


def log_members(client: KubeClient, seen: ClusterSeen) -> Iterator[Member]:
    """The logs of the driver's pods, those on the named node alone and the webhook's where one was named.

    Of many pods those come first that are not ready or have restarted.
    """
    if isinstance(seen.pods, Unread):
        return
    pods = [pod for pod in ours(seen.pods) if _is_asked_for(pod, seen.node)]
    pods.sort(key=lambda pod: (-_trouble(pod), name_of(pod)))
    for pod in pods[:MOST_PODS]:
        for container in programs_of(pod["spec"]).values():
            yield from _logs(client, pod, str(container["name"]))
    if len(pods) > MOST_PODS:
        names = "".join(f"{namespace_of(pod)}/{name_of(pod)}\n" for pod in pods[MOST_PODS:])
        yield Member("logs/not-read.txt", f"name a node to have the logs of its pods:\n{names}".encode())


def _is_asked_for(pod: Object, node: str | None) -> bool:
    return node is None or pod["spec"].get("nodeName") == node or "webhook" in programs_of(pod["spec"])


def _trouble(pod: Object) -> int:
    """How much there is to read of a pod: its restarts, and one for each container that is not ready."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return sum(int(one.get("restartCount") or 0) + (not one.get("ready")) for one in statuses)


def _logs(client: KubeClient, pod: Object, container: str) -> Iterator[Member]:
    space, name = quote(namespace_of(pod), safe=""), quote(name_of(pod), safe="")
    path = f"/api/v1/namespaces/{space}/pods/{name}/log"
    folder = f"logs/{safe_part(name_of(pod))}/{safe_part(container)}"
    params = {"container": container, "tailLines": str(LINES), "limitBytes": str(MOST_LOG_BYTES)}
    asked = [(f"{folder}.log", params)]
    if _restarted(pod, container):
        asked.append((f"{folder}.previous.log", {**params, "previous": "true"}))
    for file, query in asked:
        try:
            text = client.text(path, query)
        except ApiError as error:
            text = f"not read: {error.what}\n"
        yield Member(file, masked_text(text).encode())


def _restarted(pod: Object, container: str) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(one.get("restartCount") for one in statuses if one.get("name") == container)
