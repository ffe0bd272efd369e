"""``gpuctl top`` joins what claims hold with what plugins measure, and works without the latter."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.clusters import Object, commands
from tests.gpuctl.answering import answering
from tests.gpuctl.approved import approve
from tests.gpuctl.cli.kubeconfigs import kubeconfig
from tests.gpuctl.documents import read_document
from tests.gpuctl.fleet.published import FIRST, SECOND, THIRD, claim, devices, published

GIB = 1 << 30
PODS = "/api/v1/pods"
DRA = "/apis/resource.k8s.io/v1"
BY = ("namespace", "class", "node")


def listed(kind: str, items: list[Object]) -> str:
    return json.dumps({"kind": f"{kind}List", "apiVersion": "v1", "metadata": {}, "items": items})


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
    name: str, answers: dict[str, str], asked: tuple[str, ...], tmp_path: Path
) -> None:
    slices, claims = held(tmp_path)
    for node in ("node-b", "node-c", "node-d"):
        slices += published(tmp_path, node)
        claims.append(claim(f"on-{node}", SECOND, node=node))
    flag = "--metrics-addr=:9402"
    pods = [plugin_pod("node-a", flag), plugin_pod("node-b"), plugin_pod("node-c", flag)]
    cluster = {
        f"{DRA}/resourceslices": listed("ResourceSlice", slices),
        f"{DRA}/resourceclaims": listed("ResourceClaim", claims),
        PODS: listed("Pod", pods),
    }
    told = []
    with answering({**cluster, **answers}, json.dumps({"kind": "Status", "message": "no"})) as port:
        address = f"127.0.0.1:{port}"
        config = kubeconfig(tmp_path / "config", f"http://{address}", here=None)
        for words in (*asked, "-o json"):
            arguments = ["top", "--kubeconfig", str(config), *words.split()]
            output = CliRunner().invoke(commands, arguments, catch_exceptions=False).stdout
            told.append(f"$ gpuctl top {words}".rstrip() + f"\n{output.replace(address, 'SERVER')}")

    *told, document = told
    read_document(document.partition("\n")[2], "GpuUsage")
    approve(f"top/{name}", "\n".join(told))
