"""Measures ``gpuctl web`` on a made-up cluster of 1,000 nodes with 8 GPUs each, whose claims come and go.

``python -m tools.bench.page`` needs chromium for the first paint. The API server is the embedded one. It runs
in a process of its own, so that its processor time and memory do not count for the page.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from envtest.client.api import ApiClient
from envtest.embedded.server import EmbeddedApiServer
from gpuctl.plan.planned import plan_node
from tools.bench.process_use import cpu_seconds, resident_mib
from tools.bench.table import Row, Spread, finish
from tools.testbed.chromium import chromium

NODES = 1000
CLAIMS = 4000
PODS = 60
CHANGES_A_SECOND = 20
MEASURED_SECONDS = 30.0
WINDOWS = 3
_DRA = "/apis/resource.k8s.io/v1"
_NAMESPACE = "bench"
_CLAIM_PATH = f"{_DRA}/namespaces/{_NAMESPACE}/resourceclaims"

# When the browser painted something first, in milliseconds after the navigation began; 0 before.
_PAINT = "(performance.getEntriesByName('first-contentful-paint')[0] || {startTime: 0}).startTime"

Object = dict[str, Any]


def _cluster(kubeconfig: Path, ready: Any, churn: Any) -> None:
    """Serve the made-up cluster, and change claims and taints while ``churn`` is set."""
    with EmbeddedApiServer() as server:
        server.write_kubeconfig(kubeconfig)
        api = ApiClient(server.url, None, "")
        allocated = _fill(server, api)
        ready.set()
        number = 0
        while True:
            churn.wait()
            number += 1
            _change(api, allocated, number)
            time.sleep(1 / CHANGES_A_SECOND)


def _fill(server: EmbeddedApiServer, api: ApiClient) -> dict[int, Object | None]:
    """Make nodes, claims and pods; returns the allocation result of each claim."""
    exact = {"deviceClassName": "gpu.nvidia.com"}
    server.create("/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
    expression = "device.driver == 'gpu.nvidia.com'"
    server.create(
        f"{_DRA}/deviceclasses",
        {
            "metadata": {"name": "gpu.nvidia.com"},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        },
    )
    planned = plan_node("hgx-h100", "node-0", None).slices
    for node in range(NODES):
        server.create("/api/v1/nodes", {"metadata": {"name": f"node-{node}"}})
        for one in planned:
            server.create(f"{_DRA}/resourceslices", _slice_of(one, node))
    devices = [str(device["name"]) for one in planned for device in one["spec"].get("devices") or ()]
    allocated: dict[int, Object | None] = {}
    for number in range(CLAIMS):
        server.create(_CLAIM_PATH, _claim(number, exact))
        node, device = divmod(number * 2, len(devices))
        result = {"request": "gpu", "driver": "gpu.nvidia.com", "device": devices[device]}
        allocated[number] = {**result, "pool": f"node-{node}/gpu.nvidia.com"}
        _allocate(api, number, allocated[number])
    for number in range(PODS):
        pod = {
            "metadata": {"name": f"waits-{number}", "namespace": _NAMESPACE},
            "spec": {
                "containers": [{"name": "main", "image": "train"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": f"claim-{number}"}],
                "schedulingGates": [{"name": "example.com/wait"}],
            },
        }
        server.create(f"/api/v1/namespaces/{_NAMESPACE}/pods", pod)
    return allocated


def _slice_of(planned: Object, node: int) -> Object:
    """The planned slice as this node would publish it."""
    name = f"node-{node}"
    pool = {**planned["spec"]["pool"], "name": f"{name}/gpu.nvidia.com"}
    devices = []
    for device in planned["spec"].get("devices") or ():
        uuid = f"GPU-{node:08x}-0000-0000-0000-{int(device['attributes']['index']['int']):012x}"
        devices.append({**device, "attributes": {**device["attributes"], "uuid": {"string": uuid}}})
    return {
        "metadata": {"name": f"{name}-gpus"},
        "spec": {**planned["spec"], "nodeName": name, "pool": pool, "devices": devices},
    }


def _claim(number: int, exact: Object) -> Object:
    return {
        "metadata": {"name": f"claim-{number}", "namespace": _NAMESPACE},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exact}]}},
    }


def _allocate(api: ApiClient, number: int, result: Object | None) -> None:
    """Write the allocation of a claim, or remove it."""
    allocation = {"devices": {"results": [result]}} if result else None
    api.patch(f"{_CLAIM_PATH}/claim-{number}/status", {"status": {"allocation": allocation}})


def _change(api: ApiClient, allocated: dict[int, Object | None], number: int) -> None:
    """Remove the allocation of a claim or restore it; every 20th time add or remove a taint of a GPU."""
    claim = number // 2 * 7 % CLAIMS
    _allocate(api, claim, allocated[claim] if number % 2 else None)
    if number % 20 == 0:
        path = f"{_DRA}/resourceslices/node-{number % NODES}-gpus"
        found = api.get(path)
        device = found["spec"]["devices"][0]
        if not device.pop("taints", None):
            device["taints"] = [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}]
        api.request("PUT", path, found)


@contextmanager
def _page(kubeconfig: Path) -> Iterator[tuple[int, str]]:
    """The process id of ``gpuctl web`` and its address."""
    flags = ("--addr", "127.0.0.1:0", "--kubeconfig", str(kubeconfig))
    command = [sys.executable, "-m", "gpuctl", "web", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None, "it did not start"
            yield process.pid, found[0]
        finally:
            process.send_signal(signal.SIGTERM)


def _wait_without(address: str, words: str) -> None:
    """Wait until the page no longer contains these words."""
    while True:
        with urlopen(address) as answer:  # noqa: S310 - it is our own
            if words not in answer.read().decode():
                return
        time.sleep(0.1)


def _window(address: str, stop: threading.Event) -> None:
    """Do what an open page does: wait for events that something has changed, and fetch the changed parts."""
    marks: dict[str, str] = {}
    with urlopen(f"{address}events") as stream:  # noqa: S310 - it is our own
        for line in stream:
            if stop.is_set():
                return
            if line.startswith(b"event: changed"):
                have = ",".join(f"{name}.{mark}" for name, mark in marks.items())
                with urlopen(f"{address}live/?have={have}") as answer:  # noqa: S310 - it is our own
                    marks |= {name: part["mark"] for name, part in json.loads(answer.read()).items()}


def measure(kubeconfig: Path, churn: Any) -> list[Row]:
    """The rows of the table."""
    started = time.perf_counter()
    with _page(kubeconfig) as (pid, address):
        begun_seconds = time.perf_counter() - started
        # Words that the page shows while it reads the cluster, and while it counts devices.
        _wait_without(address, "being read")
        read_seconds = time.perf_counter() - started
        _wait_without(address, "so far")
        counted_seconds = time.perf_counter() - started
        paints = []
        with chromium() as tab:
            for _ in range(5):
                tab.open(address)
                tab.wait(lambda: tab.evaluate(_PAINT) > 0, "the first paint")
                paints.append(tab.evaluate(_PAINT) / 1000)
        at_rest = _share(pid, 10.0)
        stop = threading.Event()
        windows = [
            threading.Thread(target=_window, args=(address, stop), daemon=True) for _ in range(WINDOWS)
        ]
        for window in windows:
            window.start()
        churn.set()
        # The first changes meet windows that are still loading.
        time.sleep(3)
        busy = _share(pid, MEASURED_SECONDS)
        memory = resident_mib(pid)
        stop.set()
        churn.clear()
    one = Spread.of
    return [
        Row("until it serves", one([begun_seconds]), 2.0, "s"),
        Row("until 1,000 nodes and 4,000 claims are read and shown", one([read_seconds]), 10.0, "s"),
        Row("until the devices of each class are counted", one([counted_seconds]), None, "s"),
        Row("first paint", one(paints), 1.0, "s"),
        Row("of a core at rest", one([at_rest * 1000]), 20.0, "ms a second"),
        Row(
            f"of a core at {CHANGES_A_SECOND} changes a second, {WINDOWS} windows",
            one([busy * 1000]),
            100.0,
            "ms a second",
        ),
        Row("memory", one([memory]), None, "MiB"),
    ]


def _share(pid: int, seconds: float) -> float:
    """The part of a core that a process uses, measured for so long."""
    before, started = cpu_seconds(pid), time.perf_counter()
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.perf_counter() - started)


def main() -> None:
    """Print the table; exits with 1 if a limit is not met."""
    context = multiprocessing.get_context("spawn")
    ready, churn = context.Event(), context.Event()
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "config"
        cluster = context.Process(target=_cluster, args=(kubeconfig, ready, churn), daemon=True)
        cluster.start()
        try:
            while not ready.wait(1):
                assert cluster.is_alive(), "the made-up cluster ended"
            table = measure(kubeconfig, churn)
        finally:
            cluster.kill()
            cluster.join()
    finish(table, "embedded", "median")


if __name__ == "__main__":
    main()
