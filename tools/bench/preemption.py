"""Measures the preemptor on a made-up cluster: 100 full nodes with 8 GPUs each, and 5,000 pods that wait.

``python -m tools.bench.preemption``. The API server is the embedded one, in a process of its own, so that its
processor time does not count. Its scheduler is missing: the pods were refused already.
"""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from driver.kube.client import KubeClient
from envtest.embedded.server import EmbeddedApiServer
from tools.bench.process_use import cpu_seconds, resident_mib
from tools.bench.table import Row, Spread, finish

NODES, GPUS = 100, 8
WAITING = 5000
CHANGES_A_SECOND = 10
MEASURED_SECONDS = 60.0
URGENT = 5
"""How many urgent pods come, one after the other."""

_DRA = "/apis/resource.k8s.io/v1"
_PODS = "/api/v1/namespaces/bench/pods"
_CLAIMS = f"{_DRA}/namespaces/bench/resourceclaims"
_REFUSED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
_PRIORITIES = {"waiting": 10, "running": 100, "urgent": 1000}

Object = dict[str, Any]


class _MadeUp:
    """The made-up cluster on an embedded API server."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        self._server = server
        for name in ("bench", "gpu-dra"):
            server.create("/api/v1/namespaces", {"metadata": {"name": name}})
        for name, value in _PRIORITIES.items():
            about = {"metadata": {"name": name}, "value": value}
            server.create("/apis/scheduling.k8s.io/v1/priorityclasses", about)
        server.create(f"{_DRA}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
        for number in range(NODES):
            self._node(f"node-{number}")
        for number in range(WAITING):
            self.pod(f"waits-{number}", "waiting", {"conditions": [_REFUSED]})

    def _node(self, name: str) -> None:
        self._server.create("/api/v1/nodes", {"metadata": {"name": name}})
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"gpu-{number}"} for number in range(GPUS)]
        spec = {"driver": "gpu.example.com", "nodeName": name, "pool": pool, "devices": devices}
        self._server.create(f"{_DRA}/resourceslices", {"metadata": {"name": name}, "spec": spec})
        for device in devices:
            result = {"request": "gpu", "driver": "gpu.example.com", "pool": name, "device": device["name"]}
            pod = self.pod(f"{name}-{device['name']}", "running", {"phase": "Running"}, nodeName=name)
            self.allocate(pod, result)

    def pod(self, name: str, priority: str, status: Object, **spec: Any) -> Object:
        """A pod with a claim for a GPU."""
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
        self._server.create(_CLAIMS, {"metadata": {"name": name}, "spec": {"devices": devices}})
        made = self._server.create(
            _PODS,
            {
                "metadata": {"name": name},
                "spec": {
                    "priorityClassName": priority,
                    "containers": [{"name": "main", "image": "train"}],
                    "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
                    **spec,
                },
            },
        )
        return self._server.replace(f"{_PODS}/{name}/status", {**made, "status": status})

    def allocate(self, pod: Object, result: Object) -> None:
        """Give the claim of a pod its device."""
        metadata = pod["metadata"]
        user = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
        self._write(metadata["name"], status)

    def change(self, number: int) -> None:
        """Let a claim lose its user, or have it again: what is free on a node changes each time."""
        name = f"node-{number // 2 % (NODES // 2)}-gpu-0"
        [stored] = [
            one for one in self._server.objects("resourceclaims", "resource.k8s.io") if _is(one, name)
        ]
        [pod] = [one for one in self._server.objects("pods") if _is(one, name)]
        user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
        self._write(name, {**stored["status"], "reservedFor": [] if number % 2 else [user]})

    def _write(self, name: str, status: Object) -> None:
        [stored] = [
            one for one in self._server.objects("resourceclaims", "resource.k8s.io") if _is(one, name)
        ]
        self._server.replace(f"{_CLAIMS}/{name}/status", {**stored, "status": status})


def _is(item: Object, name: str) -> bool:
    return bool(item["metadata"]["name"] == name)


def _cluster(kubeconfig: Path, ready: Any, churn: Any, urgent: Any) -> None:
    """Serve the cluster; change claims while ``churn`` is set, and make an urgent pod for each ``urgent``."""
    with EmbeddedApiServer() as server:
        server.write_kubeconfig(kubeconfig)
        made_up = _MadeUp(server)
        ready.set()
        changes = 0
        while True:
            if urgent.acquire(timeout=1 / CHANGES_A_SECOND):
                made_up.pod(f"urgent-{time.monotonic_ns()}", "urgent", {"conditions": [_REFUSED]})
            if churn.is_set():
                changes += 1
                made_up.change(changes)


@contextmanager
def _preemptor(kubeconfig: Path) -> Iterator[int]:
    """The process id of the preemptor."""
    command = [sys.executable, "-m", "controller.preemptor", "--kubeconfig", str(kubeconfig)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)


def _evicted(client: KubeClient) -> int:
    """How many pods were evicted, by the events on them: a list of all pods takes long."""
    selected = {"fieldSelector": "reason=PreemptedForDevices"}
    return len(client.get("/api/v1/namespaces/bench/events", selected)["items"])


def _until_evicted(client: KubeClient, urgent: Any) -> float:
    """The seconds from the arrival of an urgent pod until somebody is evicted for it."""
    before, started = _evicted(client), time.perf_counter()
    urgent.release()
    while _evicted(client) == before:
        time.sleep(0.02)
    return time.perf_counter() - started


def measure(kubeconfig: Path, churn: Any, urgent: Any) -> list[Row]:
    """The rows of the table."""
    client = KubeClient.connect(kubeconfig)
    with _preemptor(kubeconfig) as pid:
        _until_evicted(client, urgent)
        begun = cpu_seconds(pid)
        rest = _cpu_of_a_minute(pid)
        churn.set()
        busy = _cpu_of_a_minute(pid)
        waits = [_until_evicted(client, urgent) for _ in range(URGENT)]
        churn.clear()
        memory = resident_mib(pid)
    client.close()
    return [
        Row("processor time until the first eviction", Spread.of([begun]), None, "s"),
        Row("processor time at rest", Spread.of([rest]), 2.0, "s a minute"),
        Row(f"processor time at {CHANGES_A_SECOND} changes a second", Spread.of([busy]), 2.0, "s a minute"),
        Row("an urgent pod comes, until a pod is evicted", Spread.of(waits), 2.0, "s"),
        Row("memory", Spread.of([memory]), None, "MiB"),
    ]


def _cpu_of_a_minute(pid: int) -> float:
    before, started = cpu_seconds(pid), time.perf_counter()
    time.sleep(MEASURED_SECONDS)
    return (cpu_seconds(pid) - before) * 60 / (time.perf_counter() - started)


def main() -> None:
    """Print the table; exits with 1 if a limit is not met."""
    context = multiprocessing.get_context("spawn")
    ready, churn, urgent = context.Event(), context.Event(), context.Semaphore(0)
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "config"
        cluster = context.Process(target=_cluster, args=(kubeconfig, ready, churn, urgent), daemon=True)
        cluster.start()
        try:
            while not ready.wait(1):
                assert cluster.is_alive(), "the made-up cluster ended"
            table = measure(kubeconfig, churn, urgent)
        finally:
            cluster.kill()
            cluster.join()
    finish(table, "embedded", "median")


if __name__ == "__main__":
    main()
