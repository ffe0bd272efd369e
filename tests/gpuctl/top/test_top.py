"""``gpuctl top`` joins what claims hold with what plugins measure, and works without the latter."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner

from tests.clusters import commands
from tests.gpuctl.approved import approve
from tests.gpuctl.cli.kubeconfigs import kubeconfig
from tests.gpuctl.documents import read_document
from tests.gpuctl.fleet.published import FIRST, SECOND, THIRD, Object, claim, devices, published

GIB = 1 << 30
PODS = "/api/v1/pods"
DRA = "/apis/resource.k8s.io/v1"
BY = ("namespace", "class", "node")


def listed(kind: str, items: list[Object]) -> Object:
    return {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {}, "items": items}


def series(name: str, claim: str, device: str, value: float, share_id: str = "") -> str:
    labels = (
        f'claim_namespace="team",claim="{claim}",device="{device}",share_id="{share_id}",pod="x",kind="whole"'
    )
    return f"{name}{{{labels}}} {value}\n"


METRICS = (
    "# HELP gpu_dra_device_memory_used_bytes What it uses.\n# TYPE gpu_dra_device_memory_used_bytes gauge\n"
    + series("gpu_dra_device_memory_used_bytes", "train", SECOND, 60 * GIB)
    + series("gpu_dra_device_memory_used_bytes", "ci", f"{FIRST}-mig-1g-10gb-0", 1 * GIB)
    + "# TYPE gpu_dra_device_memory_allocated_bytes gauge\n"
    + series("gpu_dra_device_memory_allocated_bytes", "train", SECOND, 80 * GIB)
    + "# TYPE gpu_dra_device_utilization_ratio gauge\n"
    + series("gpu_dra_device_utilization_ratio", "train", SECOND, 0.93)
    + "# TYPE gpu_dra_other gauge\ngpu_dra_other 1\n"
)


def plugin_pod(node: str, *words: str) -> Object:
    container = {"name": "plugin", "command": ["gpu-dra-kubeletplugin"], "args": list(words)}
    return {
        "metadata": {
            "namespace": "gpu-dra",
            "name": f"plugin-{node}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running"},
    }


def held(folder: Path) -> tuple[list[Object], list[Object]]:
    """A node's slices, and claims: a whole GPU, a partition, two shares, and one that looks on."""
    slices = published(folder)
    share = next(str(one["name"]) for one in devices(slices, THIRD))
    consumed: Object = {"consumedCapacity": {"memory": "0", "shares": "1"}}
    limited = claim("limited", share, **consumed, shareID="s-2")
    data = {"memoryLimitBytes": 10 * GIB, "memoryUsedBytes": 3 * GIB}
    place = {"driver": "gpu.nvidia.com", "pool": "node-a/gpu.nvidia.com", "device": share, "shareID": "s-2"}
    limited["status"]["devices"] = [{**place, "data": data}]
    return slices, [
        claim("train", SECOND, pods=("train-0",)),
        claim("ci", f"{FIRST}-mig-1g-10gb-0"),
        claim("lab", share, **consumed, shareID="s-1"),
        limited,
        claim("monitor", SECOND, adminAccess=True),
    ]


@contextmanager
def api_server(answers: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str]]:
    """An API server that knows these paths, and hands requests on to pods; its kubeconfig and its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.partition("?")[0])
            body = (
                found if isinstance(found, str) else json.dumps(found or {"kind": "Status", "message": "no"})
            )
            self.send_response(200 if found is not None else 503)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_words: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        address = f"127.0.0.1:{server.server_port}"
        config = kubeconfig(folder / "config", f"http://{address}", here=None)
        try:
            yield str(config), address
        finally:
            server.shutdown()
            thread.join()


SCRAPED = "/api/v1/namespaces/gpu-dra/pods/plugin-node-a:9402/proxy/metrics"


@pytest.mark.parametrize(
    ("name", "answers", "asked"),
    [
        ("metrics", {SCRAPED: METRICS}, ("", "-o wide", "node-a", *(f"--by {by}" for by in BY))),
        ("no-metrics", {SCRAPED: "what is this"}, ("",)),
        ("no-claims", {f"{DRA}/resourceclaims": listed("ResourceClaim", [])}, ("", "--by node")),
    ],
)
def test_it_says_what_is_approved(
    name: str, answers: dict[str, Any], asked: tuple[str, ...], tmp_path: Path
) -> None:
    slices, claims = held(tmp_path)
    for node in ("node-b", "node-c", "node-d"):
        slices += published(tmp_path, node)
        claims.append(claim(f"on-{node}", SECOND, node=node))
    port = "--metrics-addr=:9402"
    pods = [plugin_pod("node-a", port), plugin_pod("node-b"), plugin_pod("node-c", port)]
    cluster = {
        f"{DRA}/resourceslices": listed("ResourceSlice", slices),
        f"{DRA}/resourceclaims": listed("ResourceClaim", claims),
        PODS: listed("Pod", pods),
    }
    told = []
    with api_server({**cluster, **answers}, tmp_path) as (config, address):
        for words in (*asked, "-o json"):
            arguments = ["top", "--kubeconfig", config, *words.split()]
            output = CliRunner().invoke(commands, arguments, catch_exceptions=False).stdout
            told.append(f"$ gpuctl top {words}".rstrip() + f"\n{output.replace(address, 'SERVER')}")

    *told, document = told
    read_document(document.partition("\n")[2], "GpuUsage")
    approve(f"top/{name}", "\n".join(told))
