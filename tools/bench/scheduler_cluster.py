"""A real control plane whose scheduler starts when the backlog is complete, and the time it then needs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envtest.client import paths
from envtest.client.api import ApiClient
from envtest.real import commands, control_plane, description, nodes
from envtest.real.cluster import RealCluster
from envtest.real.startup import start_cluster
from gpuctl.simulate.device_classes import load_classes
from tools.bench.scheduler_nodes import CLIENTS, create_all

Object = dict[str, Any]

STALLED_SECONDS = 15.0
"""A scheduler that does nothing for so long has given up on what is left."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the scheduler was: ``bound`` pods in ``seconds``, from its first write of a claim.

    ``processor_seconds`` is what it used of the processors until then, its start aside: a busy machine
    makes everything slower, but hardly this.
    """

    bound: int
    seconds: float
    processor_seconds: float

    @property
    def pods_per_second(self) -> float:
        """Pods by time."""
        return self.bound / self.seconds

    @property
    def processor_ms_per_pod(self) -> float:
        """Milliseconds of one processor."""
        return 1000 * self.processor_seconds / self.bound


@contextmanager
def control_plane_alone(kubernetes: str) -> Iterator[RealCluster]:
    """etcd and the API server, with the shipped DeviceClasses; no scheduler, controllers or kubelet run.

    Nobody then tells that the nodes of the bench do not report, nor touches its claims.
    """
    with start_cluster(kubernetes=kubernetes) as cluster:
        (node,) = cluster.nodes
        for name in (
            *(control_plane.SCHEDULER, control_plane.CONTROLLER_MANAGER),
            *(nodes.kubelet_name(node), nodes.containerd_name(node)),
        ):
            cluster.processes.named(name).kill()
        cluster.api.delete(paths.node(node.name))
        cluster.api.apply(load_classes(()))
        yield cluster


def pods_with_claims(device_class: str, count: int) -> tuple[list[Object], list[Object]]:
    """Claims for one device each, and the pods that name them: no controller has to make claims."""
    exactly = {"deviceClassName": device_class}
    claims = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": f"claim-{index}"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }
        for index in range(count)
    ]
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{index}"},
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [
                    {"name": "main", "image": "unused", "resources": {"claims": [{"name": "gpu"}]}}
                ],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": f"claim-{index}"}],
            },
        }
        for index in range(count)
    ]
    return claims, pods


def measure(
    cluster: RealCluster, slices: Iterable[Object], device_class: str, count: int, limit: float
) -> Pace:
    """Let a fresh scheduler work off ``count`` pods, for at most ``limit`` seconds; clears up behind it.

    All objects are there before the scheduler starts: its pace is then its own, not that of the clients
    which create them. Raises RuntimeError when it gives up on pods, TimeoutError when it never begins.
    """
    api = cluster.api
    claims, pods = pods_with_claims(device_class, count)
    create_all(api, slices)
    create_all(api, claims)
    create_all(api, pods)
    try:
        return _work_off(cluster, count, limit)
    finally:
        _clear(cluster, claims)


def _work_off(cluster: RealCluster, count: int, limit: float) -> Pace:
    described = description.load(cluster.folder)
    arguments = commands.kube_scheduler(described.layout, described.slot)
    binary = described.assets.binary(control_plane.SCHEDULER)
    claims = _changes(cluster.api, paths.resource_claim())
    bound = _changes(cluster.api, paths.pod(), fieldSelector="spec.nodeName!=")
    scheduler = cluster.processes.start(control_plane.SCHEDULER, [binary, *arguments])
    try:
        stat = Path(f"/proc/{scheduler.host_pid}/stat")
        next(claims)
        begun, used = time.perf_counter(), _processor_seconds(stat)
        times = _times(bound, begun, count, limit)
        return Pace(len(times), max(times) - begun, _processor_seconds(stat) - used)
    finally:
        scheduler.kill()
        claims.close()
        bound.close()


def _processor_seconds(stat: Path) -> float:
    """What a process used so far, in user and in kernel mode: fields 14 and 15 of proc(5)."""
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _changes(api: ApiClient, path: str, **query: str) -> Generator[str]:
    """The names of the objects that change from now on; raises TimeoutError when none does for long."""

    def watched(version: str) -> Generator[str]:
        while True:
            # The API server ends a watch whose reader lags behind: it goes on where it was.
            since = {"watch": "true", "resourceVersion": version, **query}
            with api.stream("GET", path, query=since, timeout_seconds=STALLED_SECONDS) as lines:
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise RuntimeError(f"the watch of {path} failed: {event['object']}")
                    version = event["object"]["metadata"]["resourceVersion"]
                    yield event["object"]["metadata"]["name"]

    return watched(api.get(path)["metadata"]["resourceVersion"])


def _times(bound: Iterable[str], begun: float, count: int, limit: float) -> list[float]:
    """When each pod was bound; a pod may change again afterwards, which counts no more."""
    times: dict[str, float] = {}
    try:
        for name in bound:
            now = time.perf_counter()
            times.setdefault(name, now)
            if len(times) == count or now - begun > limit:
                break
    except TimeoutError as error:
        raise RuntimeError(
            f"the scheduler bound {len(times)} of {count} pods, and then none for {STALLED_SECONDS:g} s"
        ) from error
    return list(times.values())


def _clear(cluster: RealCluster, claims: Sequence[Object]) -> None:
    """Remove pods, claims and slices. No controller runs that would take the claims' finalizer away."""
    api = cluster.api
    api.request("DELETE", paths.pod(), {"gracePeriodSeconds": 0})

    def remove(claim: Object) -> None:
        path = paths.resource_claim(claim["metadata"]["name"])
        api.patch(path, {"metadata": {"finalizers": None}})
        api.delete(path)

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(remove, claims))
    api.request("DELETE", paths.resource_slice())
