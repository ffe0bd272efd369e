"""Measures the embedded API server: its start, requests a second, memory, and what watches cost."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import resource
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

from envtest.embedded.server import EmbeddedApiServer

CLIENTS = 20
SECONDS = 5.0
SLICES = 10_000
PODS = 10_000
WATCHES = 200
IDLE_WATCHES = 500
_WRITES = 300
_ROUNDS = 5
_PODS = "/api/v1/namespaces/default/pods"
_NODES = "/api/v1/nodes"
_CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_DEVICES_OF_SLICE = 8


def measure() -> dict[str, float]:
    """Seconds until it is ready, requests a second with 20 clients, and MB for 10,000 slices of 8 GPUs.

    Clients and server are processes of their own. Half of the requests read a claim, half write it. Also MB
    for 10,000 pods with 200 watches that get all of them, how much longer a write takes with 500 idle watches
    on another kind, and the seconds until the threads of these watches have ended after they were closed.
    """
    ready_seconds = _in_process(_ready)
    rate = _in_process(_rate)
    slices_mb = _in_process(_slices_memory)
    return {
        "ready_seconds": ready_seconds,
        "requests_per_second": rate,
        "slices_mb": slices_mb,
        "watched_pods_mb": _in_process(_watched_pods_memory),
        "idle_ratio": _in_process(_idle_ratio),
        "threads_seconds": _in_process(_threads_seconds),
    }


def _in_process(work: Callable[[Connection], None]) -> float:
    """What ``work`` sends from a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs,))
    process.start()
    found: float = ours.recv()
    process.join()
    return found


def _ready(answer: Connection) -> None:
    started = time.perf_counter()
    with EmbeddedApiServer() as server:
        connection = _connected(server.url)
        connection.request("GET", "/readyz")
        connection.getresponse().read()
        answer.send(time.perf_counter() - started)


def _rate(answer: Connection) -> None:
    with EmbeddedApiServer() as server:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        clients = context.Process(target=_clients, args=(server.url, theirs))
        clients.start()
        answer.send(ours.recv())
        clients.join()


def _clients(url: str, answer: Connection) -> None:
    counts = [0] * CLIENTS
    end = time.perf_counter() + SECONDS

    def run(number: int) -> None:
        counts[number] = _client(url, f"claim-{number}", end)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answer.send(sum(counts) / SECONDS)


def _client(url: str, name: str, end: float) -> int:
    connection = _connected(url)
    exact = {"deviceClassName": "gpu.example.com"}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exact}]}}
    item = _request(connection, "POST", _CLAIMS, {"metadata": {"name": name}, "spec": spec})
    path, count = f"{_CLAIMS}/{name}", 1
    while time.perf_counter() < end:
        item = _request(connection, "GET", path)
        item["metadata"]["labels"] = {"round": str(count)}
        _request(connection, "PUT", path, item)
        count += 2
    return count


def _slices_memory(answer: Connection) -> None:
    server = EmbeddedApiServer()
    before = _peak_mb()
    for number in range(SLICES):
        server.create(_SLICES, _resource_slice(number))
    answer.send(_peak_mb() - before)


def _watched_pods_memory(answer: Connection) -> None:
    before = _peak_mb()
    with EmbeddedApiServer() as server:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        clients = context.Process(target=_watch_and_read, args=(server.url, theirs))
        clients.start()
        ours.recv()
        container = {"name": "c", "image": "registry.example.com/image:1.0", "command": ["sleep", "1000"]}
        for number in range(PODS):
            name = f"pod-{number}"
            server.create(
                _PODS,
                {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [container]}},
            )
        # All watches have got all pods.
        ours.recv()
        answer.send(_peak_mb() - before)
        clients.join()


def _watch_and_read(url: str, answer: Connection) -> None:
    """Watch pods with many connections until each has got all of them."""
    answers = _watches(url, _PODS, WATCHES)
    answer.send(None)

    def read(response: http.client.HTTPResponse) -> None:
        for _ in range(PODS):
            response.readline()

    threads = [threading.Thread(target=read, args=(one,)) for one in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answer.send(None)


def _watches(url: str, path: str, count: int) -> list[http.client.HTTPResponse]:
    """Watches that have begun; each has a connection of its own."""
    found = []
    for _ in range(count):
        connection = _connected(url)
        connection.request("GET", f"{path}?watch=true&resourceVersion=1")
        found.append(connection.getresponse())
    return found


def _idle_ratio(answer: Connection) -> None:
    with EmbeddedApiServer() as alone, EmbeddedApiServer() as watched:
        watches = _watches(watched.url, _NODES, IDLE_WATCHES)
        ratios = []
        # Both in turns, so that what else the machine does slows both.
        for number in range(_ROUNDS):
            seconds = [_writes_seconds(server, number) for server in (alone, watched)]
            ratios.append(seconds[1] / seconds[0])
        answer.send(sorted(ratios)[_ROUNDS // 2])
        del watches


def _writes_seconds(server: EmbeddedApiServer, round_number: int) -> float:
    """The seconds of some writes without a connection, which would hide a part of the difference."""
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
    started = time.perf_counter()
    for number in range(_WRITES):
        server.create(_CLAIMS, {"metadata": {"name": f"claim-{round_number}-{number}"}, "spec": spec})
    return time.perf_counter() - started


def _threads_seconds(answer: Connection) -> None:
    with EmbeddedApiServer() as server:
        before = threading.active_count()
        watches = _watches(server.url, _NODES, IDLE_WATCHES)
        started = time.perf_counter()
        for watch in watches:
            watch.close()
        while threading.active_count() > before:
            time.sleep(0.01)
        answer.send(time.perf_counter() - started)


def _resource_slice(number: int) -> dict[str, Any]:
    node = f"node-{number}"
    devices = [
        {
            "name": f"gpu-0000-{index:02x}-00-0",
            "attributes": {
                "uuid": {"string": f"GPU-{number:08x}-0000-0000-0000-{index:012x}"},
                "index": {"int": index},
                "productName": {"string": "NVIDIA H100 80GB HBM3"},
                "architecture": {"string": "Hopper"},
                "brand": {"string": "Nvidia"},
                "driverVersion": {"version": "580.95.5"},
                "cudaDriverVersion": {"version": "13.0.0"},
                "cudaComputeCapability": {"version": "9.0.0"},
                "migCapable": {"bool": True},
                "type": {"string": "gpu"},
                "resource.kubernetes.io/pciBusID": {"string": f"0000:{index:02x}:00.0"},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{index:02x}"},
                "resource.kubernetes.io/numaNode": {"int": index // 4},
            },
            "capacity": {"memory": {"value": "81559Mi"}, "multiprocessors": {"value": "132"}},
        }
        for index in range(_DEVICES_OF_SLICE)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": devices}
    return {"metadata": {"name": node}, "spec": spec}


def _connected(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    assert parts.hostname is not None
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)


def _request(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
    response = connection.getresponse()
    content = json.loads(response.read())
    if response.status >= 300:
        raise RuntimeError(f"{method} {path} was answered {response.status}: {content.get('message')}")
    return content


def _peak_mb() -> float:
    # Linux gives ru_maxrss in KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> bool:
    """Print a table; returns whether all limits are met."""
    found = measure()
    rows: tuple[tuple[str, float, str, float, bool], ...] = (
        ("ready", found["ready_seconds"], "s", 1.0, found["ready_seconds"] <= 1.0),
        (
            "requests, 20 clients",
            found["requests_per_second"],
            "a second",
            2000.0,
            found["requests_per_second"] >= 2000,
        ),
        ("10,000 slices of 8 GPUs", found["slices_mb"], "MB", 300.0, found["slices_mb"] <= 300),
    )
    rows += (
        ("10,000 pods, 200 watches", found["watched_pods_mb"], "MB", 300.0, found["watched_pods_mb"] <= 300),
        ("write with 500 idle watches", found["idle_ratio"], "times", 1.5, found["idle_ratio"] <= 1.5),
        ("500 closed watches", found["threads_seconds"], "s", 1.0, found["threads_seconds"] <= 1.0),
    )
    print("| the embedded API server | measured | limit | met |\n|---|---|---|---|")
    for what, value, unit, limit, met in rows:
        print(f"| {what} | {value:,.2f} {unit} | {limit:g} {unit} | {'yes' if met else 'NO'} |")
    return all(row[-1] for row in rows)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
