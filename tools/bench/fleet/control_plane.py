"""What an API server and its etcd say and use: requests, watches, bytes, processor time, memory."""

from __future__ import annotations

import http.client
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from envtest.client.layout import ClusterLayout
from envtest.real import control_plane
from envtest.real.cluster import RealCluster
from tools.bench.process_use import cpu_seconds, resident_mib

RESOURCES = frozenset({"nodes", "pods", "resourceslices", "resourceclaims", "events"})
"""What the driver's two processes ask for."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The control plane at one moment; counters begin with the start of the API server.

    ``requests`` are those for ``RESOURCES`` that have ended, by verb and resource, ``watches`` the open
    ones, ``rejected`` the requests that priority and fairness refused.
    """

    requests: Counter[tuple[str, str]]
    watches: int
    rejected: float
    api_server_seconds: float
    api_server_mib: float
    etcd_seconds: float
    etcd_bytes: float

    def requests_since(self, before: Figures, *, watches: bool) -> int:
        """The number of watches that have ended since then, or of all other requests."""
        ended = self.requests - before.requests
        return sum(count for (verb, _), count in ended.items() if (verb == "WATCH") == watches)

    def seconds_since(self, before: Figures) -> float:
        """The processor time of both since then."""
        now, then = (one.api_server_seconds + one.etcd_seconds for one in (self, before))
        return now - then


def read_figures(cluster: RealCluster) -> Figures:
    """Ask both; the API server must be up."""
    requests: Counter[tuple[str, str]] = Counter()
    watches, rejected = 0.0, 0.0
    for name, labels, value in _samples(cluster.api.text("/metrics")):
        if name == "apiserver_flowcontrol_rejected_requests_total":
            rejected += value
        elif labels.get("resource") in RESOURCES:
            if name == "apiserver_request_total":
                requests[labels["verb"], labels["resource"]] += int(value)
            elif name == "apiserver_longrunning_requests":
                watches += value
    api_server = cluster.processes.named(control_plane.API_SERVER).host_pid
    etcd = cluster.processes.named("etcd").host_pid
    return Figures(
        *(requests, int(watches), rejected, cpu_seconds(api_server), resident_mib(api_server)),
        *(cpu_seconds(etcd), _etcd_bytes(cluster)),
    )


def _etcd_bytes(cluster: RealCluster) -> float:
    connection = http.client.HTTPConnection("etcd")
    connection.sock = socket.socket(socket.AF_UNIX)
    with closing(connection):
        connection.sock.connect(str(ClusterLayout(cluster.folder).etcd_socket))
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    wanted = "etcd_mvcc_db_total_size_in_use_in_bytes"
    return next(value for name, _, value in _samples(text) if name == wanted)


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families(text):
        yield from ((one.name, one.labels, one.value) for one in family.samples)
