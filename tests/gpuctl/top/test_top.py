"""``gpuctl top`` joins what claims hold with what plugins measure, and works without the latter."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner

from driver.errors import ConfigError
from driver.process.metrics.table import TABLE
from envtest.embedded.server import EmbeddedApiServer
from gpuctl.__main__ import commands
from gpuctl.fleet.cluster import views_of
from gpuctl.top.picture import devices_picture
from gpuctl.top.usage import ALLOCATED, BUSY, USED, by_use, grouped, metrics_path, read_metrics, usages
from tests.gpuctl.documents import read_document
from tests.gpuctl.fleet.published import FIRST, SECOND, THIRD, Object, claim, devices, published

GIB = 1 << 30
PODS = "/api/v1/pods"
DRA = "/apis/resource.k8s.io/v1"


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


def plugin_pod(node: str, *words: str, created: str = "2026-01-01T00:00:00Z") -> Object:
    container = {"name": "plugin", "command": ["gpu-dra-kubeletplugin"], "args": list(words)}
    return {
        "metadata": {"namespace": "gpu-dra", "name": f"plugin-{node}", "creationTimestamp": created},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running"},
    }


def held(folder: Path) -> tuple[list[Object], list[Object]]:
    """A node's slices, and claims: a whole GPU, a partition, a share, and one that looks on."""
    slices = published(folder)
    share = next(str(one["name"]) for one in devices(slices, THIRD))
    consumed: Object = {"consumedCapacity": {"memory": "0", "shares": "1"}, "shareID": "s-1"}
    return slices, [
        claim("train", SECOND, pods=("train-0",)),
        claim("ci", f"{FIRST}-mig-1g-10gb-0"),
        claim("lab", share, **consumed),
        claim("monitor", SECOND, adminAccess=True),
    ]


def test_a_share_by_number_shows_how_much_of_the_gpu_it_is(tmp_path: Path) -> None:
    (view,) = views_of(*held(tmp_path))

    lines = devices_picture(usages(view, {}), (), wide=False).splitlines()

    (lab,) = [line for line in lines if line.startswith("team/lab")]
    assert "25%" in lab.split()


def test_a_node_that_publishes_nothing_is_no_answer(tmp_path: Path) -> None:
    with EmbeddedApiServer() as server:
        kubeconfig = str(server.write_kubeconfig(tmp_path / "config"))

        told = CliRunner().invoke(commands, ["top", "nope", "--kubeconfig", kubeconfig])

    assert isinstance(told.exception, ConfigError)
    assert "nope publishes no GPU of this driver" in str(told.exception)


def test_what_is_used_is_joined_by_claim_and_device(tmp_path: Path) -> None:
    (view,) = views_of(*held(tmp_path))

    train, ci, lab = by_use(usages(view, read_metrics(METRICS)))

    assert (train.claim, train.allocated_bytes, train.used_bytes, train.busy) == (
        *("team/train", 80 * GIB, 60 * GIB),
        0.93,
    )
    assert (ci.claim, ci.used_bytes, ci.busy, ci.part) == ("team/ci", GIB, None, 0.125)
    assert ci.allocated_bytes is not None
    assert 9 * GIB < ci.allocated_bytes < 10 * GIB  # without a series, as its slice says
    assert (lab.claim, lab.used_bytes, lab.part) == ("team/lab", None, 0.25)
    assert lab.allocated_bytes is None  # a share by number has no memory that anybody promised


def test_without_metrics_the_status_of_claims_tells_what_shares_use(tmp_path: Path) -> None:
    slices, claims = held(tmp_path)
    result = claims[2]["status"]["allocation"]["devices"]["results"][0]
    place = {key: result[key] for key in ("driver", "pool", "device", "shareID")}
    data = {"memoryGuaranteedBytes": 10 * GIB, "memoryLimitBytes": 10 * GIB, "memoryUsedBytes": 3 * GIB}
    claims[2]["status"]["devices"] = [{**place, "data": data}]
    (view,) = views_of(slices, claims)

    first, *others = by_use(usages(view, {}))

    assert (first.claim, first.used_bytes) == ("team/lab", 3 * GIB)
    assert [one.used_bytes for one in others] == [None, None]


@pytest.mark.parametrize("name", [ALLOCATED, USED, BUSY])
def test_the_series_are_those_that_the_plugin_shows(name: str) -> None:
    series = next(one for one in TABLE.rows if one.name == name)

    assert {"claim_namespace", "claim", "device", "share_id"} <= set(series.labels)


def test_groups_add_up_and_say_of_how_many_nothing_is_told(tmp_path: Path) -> None:
    (view,) = views_of(*held(tmp_path))
    found = usages(view, read_metrics(METRICS))

    (team,) = grouped(found, "namespace")
    (node,) = grouped(found, "node")
    (tier,) = grouped(found, "class")

    assert (team.name, team.devices, team.gpus, team.used_bytes, team.untold) == (
        *("team", 3, 1.375, 61 * GIB),
        1,
    )
    assert (node.name, tier.name) == ("node-a", "large")
    assert team.busy == 0.93


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("--metrics-addr=:9402",), "/api/v1/namespaces/gpu-dra/pods/plugin-node-a:9402/proxy/metrics"),
        (("--metrics-addr", "[::]:9"), "/api/v1/namespaces/gpu-dra/pods/plugin-node-a:9/proxy/metrics"),
        (("--log-level=info",), None),
        (("--metrics-addr=",), None),
    ],
)
def test_the_port_is_that_of_the_plugins_flag(words: tuple[str, ...], path: str | None) -> None:
    assert metrics_path(plugin_pod("node-a", *words)) == path


@contextmanager
def api_server(answers: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """An API server that knows these paths, and hands requests on to pods; the path of its kubeconfig."""

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
        config = {
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (folder / "config").write_text(json.dumps(config))
        try:
            yield str(folder / "config")
        finally:
            server.shutdown()
            thread.join()


def listed(kind: str, items: list[Object]) -> Object:
    return {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {}, "items": items}


def test_metrics_come_through_the_api_server_and_who_cannot_be_asked_is_named(tmp_path: Path) -> None:
    slices, claims = held(tmp_path)
    others = [published(tmp_path, node) for node in ("node-b", "node-c", "node-d")]
    claims += [claim(f"on-{node}", SECOND, node=node) for node in ("node-b", "node-c", "node-d")]
    port = "--metrics-addr=:9402"
    pods = [plugin_pod("node-a", port), plugin_pod("node-b"), plugin_pod("node-c", port)]
    answers = {
        f"{DRA}/resourceslices": listed(
            "ResourceSlice", [*slices, *(one for each in others for one in each)]
        ),
        f"{DRA}/resourceclaims": listed("ResourceClaim", claims),
        PODS: listed("Pod", pods),
        "/api/v1/namespaces/gpu-dra/pods/plugin-node-a:9402/proxy/metrics": METRICS,
    }

    with api_server(answers, tmp_path) as kubeconfig:

        def run(*words: str) -> str:
            arguments = ["top", "--kubeconfig", kubeconfig, *words]
            return CliRunner().invoke(commands, arguments, catch_exceptions=False).stdout

        table, one_node = run().splitlines(), run("node-a")
        spaces = run("--by", "namespace")
        told = read_document(run("-o", "json"), "GpuUsage")

    assert table[0].split() == ["CLAIM", "POD", "NODE", "GPU", "WHAT", "HELD", "USED", "USED%", "BUSY%"]
    assert table[1].split() == ["team/train", "train-0", "node-a", "1", "whole", "80Gi", "60Gi", "75", "93"]
    notes = "\n".join(line for line in table if "no metrics" in line)
    assert "node-b: no metrics: its plugin serves no metrics: set metrics.enabled" in notes
    assert "node-c: no metrics: " in notes
    assert "node-d: no metrics: no pod of the kubelet plugin runs there" in notes
    assert "node-a: no metrics" not in notes
    assert "no metrics" not in one_node
    assert spaces.splitlines()[1].split() == ["team", "6", "4.375", "328.7Gi", "61Gi", "68", "93"]
    assert "the use of 4 of the devices is unknown" in spaces
    assert [one["node"] for one in told["lacking"]] == ["node-b", "node-c", "node-d"]
    assert told["devices"][0]["usedBytes"] == 60 * GIB
