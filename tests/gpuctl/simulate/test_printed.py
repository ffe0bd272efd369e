"""What ``gpuctl simulate`` prints: which pods fit, which wait and why, and what is left."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.clusters import EmbeddedApiServer, Object, commands, error_text, plan_node
from tests.gpuctl.approved import approve
from tests.gpuctl.documents import read_document
from tests.gpuctl.simulate.workloads import wants
from tests.gpus import DriverError

DRA = "/apis/resource.k8s.io/v1"
DEVICES = ("gpu-0000-17-00-0", "gpu-0000-65-00-0", "gpu-0000-ca-00-0", "gpu-0000-e3-00-0")
CONFIG = """\
version: v1
pools:
- name: notebooks
  nodeSelector: {matchLabels: {pool: notebooks}}
  rules: [{shared: {strategy: TimeSlicing, shares: 4}}]
- name: parts
  nodeSelector: {matchLabels: {pool: parts}}
  rules:
  - {when: gpu.index < 2, mig: {dynamic: {profiles: [1g, 3g]}}}
  - offer: hidden
rules: [{offer: whole}]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the command lines lie in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("node.yaml").write_text(CONFIG)


def told(*words: str) -> str:
    """What the command prints, and how it ends."""
    ran = CliRunner().invoke(commands, ["simulate", *words])
    error = f"{error_text(ran.exception)}\n" if isinstance(ran.exception, DriverError) else ""
    return f"{ran.stdout}{ran.stderr}{error}exit code {ran.exit_code}\n"


def simulated(*words: str, groups: list[Object]) -> str:
    """What it prints of a workload with these groups."""
    Path("workload.yaml").write_text(json.dumps({"version": "v1", "pods": groups}))
    return told("--workload", "workload.yaml", *words)


def pods(name: str, count: int, *claims: Object, **more: Any) -> Object:
    return {"name": name, "count": count, "claims": claims or [wants()], **more}


SITUATIONS = {
    "all-fit": (["--nodes", "a30-quad=3"], [pods("train", 9)]),
    "some-wait": (
        ["--nodes", "a30-quad=2"],
        [pods("train", 2, wants(3)), pods("infer", 1), pods("late", 3, wants(2), wants(1))],
    ),
    "never": (
        ["--nodes", "a30-quad=2,t4=1"],
        [pods("wrong", 5, wants(1, "no-such-class")), pods("huge", 1, wants(5)), pods("right", 3)],
    ),
    "pools": (
        ["--nodes", "t4[pool=notebooks,zone=a]=3,t4=2,hgx-h100[pool=parts]=1", "--config", "node.yaml"],
        [
            pods("small", 2, wants(1, "mig-small")),
            pods("notebook", 13, wants(1, "shared-timesliced")),
            pods("whole", 4),
        ],
    ),
    "gangs": (["--nodes", "a30-quad=2"], [pods("gang", 2, gang=6), pods("one", 3)]),
    "priorities": (["--nodes", "a30-quad=1"], [pods("low", 3), pods("high", 3, priority=5)]),
    "json": (["--nodes", "a30-quad=1", "-o", "json"], [pods("train", 2, wants(3))]),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_workload_is_placed_on_machines(situation: str) -> None:
    words, groups = SITUATIONS[situation]
    text = simulated(*words, groups=groups)
    approve(f"simulate/{situation}", text)
    if situation == "json":
        read_document(text.partition("exit code")[0], "Simulation")


WRONG: tuple[list[str], ...] = (
    [],
    ["--nodes", "2", "--from-cluster"],
    ["--from-cluster", "--config", "node.yaml"],
    ["--nodes", "2"],
    ["--nodes", "t4=x"],
    ["--nodes", "t4=100001"],
    ["--nodes", "t4[pool]=1"],
    ["--nodes", "t5=1"],
)
WRONG_WORKLOADS = (
    "version: v1\npods:\n- {name: A, count: 0, claims: []}\n- {name: b, count: 1, colour: red}\n",
    "version: v1\npods: [&a {name: a, count: 1, claims: [{devices: {}}]}, *a]",
    "version: v1\npods:\n- {name: a, count: 100000, gang: 11, claims: [{devices: {}}]}\n",
    "version: v1\npods:\n- {name: a, claims: [{devices: {}}]}\n",
    "[",
    "apiVersion: v1\nkind: Pod\nmetadata: {name: mine}\n",
)


def test_what_cannot_be_simulated_is_refused() -> None:
    lines = []
    for words in WRONG:
        said = simulated(*words, groups=[pods("train", 1)])
        lines.append(f"{' '.join(words)}\n  {' '.join(said.split())}")
    for text in WRONG_WORKLOADS:
        Path("workload.yaml").write_text(text)
        said = told("--workload", "workload.yaml", "--nodes", "t4=1")
        lines.append(f"{' '.join(text.split())}\n  {' '.join(said.split())}")
    approve("simulate/wrong", "\n".join([*lines, ""]))


@pytest.fixture
def live(tmp_path: Path) -> Iterator[EmbeddedApiServer]:
    """Three nodes with four GPUs: a pod has two of node-a, node-b has a tainted one, node-c is cordoned."""
    with EmbeddedApiServer() as server:
        server.write_kubeconfig(tmp_path / "config")
        for name, spec in (("node-a", {}), ("node-b", {}), ("node-c", {"unschedulable": True})):
            metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            server.create("/api/v1/nodes", {"metadata": metadata, "spec": spec})
            for one in plan_node("a30-quad", name, None).slices:
                server.create(f"{DRA}/resourceslices", one)
        selectors = [{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}]
        ours = {"metadata": {"name": "ours"}, "spec": {"selectors": selectors}}
        server.create(f"{DRA}/deviceclasses", ours)
        rule = {
            "deviceSelector": {"pool": "node-b/gpu.nvidia.com", "device": DEVICES[0]},
            "taint": {"key": "service", "effect": "NoSchedule"},
        }
        server.create(f"{DRA}/devicetaintrules", {"metadata": {"name": "service"}, "spec": rule})
        path = f"{DRA}/namespaces/default/resourceclaims"
        made = server.create(path, {"metadata": {"name": "theirs"}, "spec": wants(2, "ours")})
        results = [
            {"request": "gpus", "driver": "gpu.nvidia.com", "pool": "node-a/gpu.nvidia.com", "device": one}
            for one in DEVICES[:2]
        ]
        status = {"allocation": {"devices": {"results": results}}}
        server.replace(f"{path}/theirs/status", {**made, "status": status})
        yield server


FROM_CLUSTER = ("--from-cluster", "--kubeconfig", "config")


def test_a_live_cluster_is_taken_with_what_is_in_use_tainted_and_cordoned(live: EmbeddedApiServer) -> None:
    workload = [pods("train", 7, wants(1, "ours")), pods("new", 1, wants(1, "new"))]
    approve("simulate/from-cluster", simulated(*FROM_CLUSTER, groups=workload))
    Path("classes.yaml").write_text("kind: DeviceClass\nmetadata: {name: new}\nspec: {}\n")
    tried = simulated(*FROM_CLUSTER, "--classes", "classes.yaml", groups=workload[1:])
    assert tried.endswith("exit code 0\n")

    for node in live.objects("nodes"):
        live.replace(f"/api/v1/nodes/{node['metadata']['name']}", {**node, "spec": {"unschedulable": True}})
    refused = simulated(*FROM_CLUSTER, groups=workload)
    assert refused.startswith("the cluster has no node that takes pods; uncordon one")
