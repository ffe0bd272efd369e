"""``gpuctl simulate`` takes machines or a cluster, and tells people and scripts the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from driver.errors import ConfigError
from envtest.embedded.server import EmbeddedApiServer
from gpuctl.__main__ import commands
from gpuctl.plan.planned import plan_node
from gpuctl.simulate.command import WORKLOAD_HELP
from gpuctl.simulate.trace import load_trace
from gpuctl.simulate.workload import load_workload
from tests.gpuctl.documents import read_document
from tests.gpuctl.simulate.workloads import wants

DRA = "/apis/resource.k8s.io/v1"
DEVICES = ("gpu-0000-17-00-0", "gpu-0000-65-00-0", "gpu-0000-ca-00-0", "gpu-0000-e3-00-0")


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    return write(tmp_path / "workload.yaml", {"name": "train", "count": 9, "claims": [wants()]})


def write(path: Path, *groups: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"version": "v1", "pods": list(groups)}))
    return path


def simulate(workload: Path, *more: str) -> Result:
    return CliRunner().invoke(
        commands, ["simulate", "--workload", str(workload), *more], catch_exceptions=False
    )


def told(workload: Path, *more: str) -> dict[str, Any]:
    return read_document(simulate(workload, *more, "-o", "json").stdout, "Simulation")


def test_the_exit_code_says_whether_somebody_waits_and_the_picture_why(workload: Path) -> None:
    waits = simulate(workload, "--nodes", "2", "--machine", "a30-quad")
    enough = simulate(workload, "--nodes", "3", "--machine", "a30-quad")

    assert (waits.exit_code, enough.exit_code) == (3, 0)
    assert "why train waits, at the end:" in waits.stdout
    assert "- 8 devices on 2 nodes: in use by pods of train" in waits.stdout
    assert "why" not in enough.stdout
    flat = " ".join(enough.stdout.split())
    assert "of 3 free whole GPUs, 2 can serve pods that want 2 on one node" in flat


def test_nothing_is_said_of_progress_where_nobody_watches(workload: Path) -> None:
    assert simulate(workload, "--nodes", "3", "--machine", "a30-quad").stderr == ""


def test_the_workload_that_the_help_shows_can_be_used(tmp_path: Path) -> None:
    file = tmp_path / "workload.yaml"
    day = tmp_path / "day.csv"
    workload, trace = (one.partition("\n\n")[0] for one in WORKLOAD_HELP.split("\b\n")[1:])
    file.write_text(workload)
    day.write_text(trace)

    (train,) = load_workload(file)

    assert [one.pods for one in load_trace(day, [train])] == [4, 1]

    assert (train.count, train.every_seconds, train.lasts_seconds, train.busy_gpus) == (200, 30, 3600, 1.9)
    assert train.devices_by_class() == {"gpu.nvidia.com": 2}
    assert "exactly: {deviceClassName: gpu.nvidia.com, count: 2}" in simulate(file, "--help").stdout


def test_nodes_may_be_of_several_machines(workload: Path) -> None:
    found = told(workload, "--nodes", "a30-quad=1,t4=2")

    assert {product: one["gpus"] for product, one in found["gpus"].items()} == {
        "NVIDIA A30": 4,
        "Tesla T4": 2,
    }
    assert found["groups"][0]["placed"] == 6


POOLS = """version: v1
pools:
- name: notebooks
  nodeSelector: {matchLabels: {pool: notebooks}}
  rules: [{shared: {strategy: TimeSlicing, shares: 4}}]
rules: [{offer: whole}]
"""


def test_nodes_of_one_machine_may_be_of_several_pools(workload: Path, tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(POOLS)

    found = told(workload, "--nodes", "t4[pool=notebooks,zone=a]=3,t4=2", "--config", str(config))

    assert {tier: one["devices"] for tier, one in found["tiers"].items()} == {
        "shared, time-slicing": 3,
        "whole": 2,
    }


def test_labels_of_a_machine_lie_on_those_of_all_nodes(workload: Path, tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(POOLS)
    flags = ("--config", str(config), "--node-labels", "pool=notebooks")

    found = told(workload, "--nodes", "t4=1,t4[pool=train]=2", *flags)

    assert {tier: one["devices"] for tier, one in found["tiers"].items()} == {
        "shared, time-slicing": 1,
        "whole": 2,
    }


def test_scripts_get_hours_shortage_and_cost(tmp_path: Path) -> None:
    group = {"name": "train", "count": 3, "claims": [wants(2)], "busy_gpus": 1.5, "lasts_seconds": 7200}
    workload = write(tmp_path / "w.yaml", group, {**group, "name": "big", "count": 1, "claims": [wants(5)]})
    flags = ("--nodes", "1", "--machine", "a30-quad", "--hours", "10", "--gpu-hour-cost", "2.5")

    found = told(workload, *flags)

    assert found["endedSeconds"] == 36000
    assert found["gpus"] == {
        "NVIDIA A30": {"gpus": 4, "inUse": 0, "hours": 40, "hoursInUse": 12, "hoursIdle": 28}
    }
    assert found["tiers"]["whole"] == {
        "devices": 4,
        "allocated": 0,
        "mostAllocated": 4,
        "free": 4,
        "hoursInUse": 12,
        "hoursIdle": 28,
    }
    assert found["classes"] == {"gpu.nvidia.com": {"waiting": 5, "hoursWaited": 50 + 4}}
    assert found["busyHours"] == pytest.approx(9)
    assert found["cost"] == {"gpuHour": 2.5, "total": 100, "idle": 70, "withoutWork": 77.5}
    why = found["groups"][1]["why"]
    assert why[0]["reason"].startswith("no node can ever serve request gpus")

    picture = simulate(workload, *flags).stdout
    assert "over 10.0 hours 30.0% of the GPU-hours were in use" in picture
    assert "22.5% of the GPU-hours were work, according to the workload" in picture
    assert "cost: 100.00, of it 70.00 for unused GPUs, 77.50 for GPU-hours without work" in picture


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Three pods of which each wants all GPUs of a node, and runs for an hour."""
    path = tmp_path / "day.csv"
    path.write_text("arrival,pod,duration\n0,train,3600\n60,train,3600\n120,train,3600\n")
    return path


def test_a_trace_is_told_as_a_summary_a_document_and_a_picture(tmp_path: Path, trace: Path) -> None:
    workload = write(tmp_path / "w.yaml", {"name": "train", "claims": [wants(4)]})
    flags = ("--nodes", "1", "--machine", "a30-quad", "--trace", str(trace))

    found, table = told(workload, *flags), simulate(workload, *flags)

    (train,) = found["groups"]
    assert (train["medianWaitSeconds"], train["p95WaitSeconds"]) == (3540, 7080)
    assert found["mostWaiting"] == 2
    assert found["course"]["gpuHours"] == {"gpu.nvidia.com": pytest.approx(8)}
    assert found["course"]["allGpus"] == 4
    assert "Waits; at most 2 pods waited at one time" in table.stdout
    assert "on average 0.0% of the free capacity was on GPUs in partial use" in table.stdout


def test_a_workload_without_a_trace_says_how_many_pods_come(tmp_path: Path, trace: Path) -> None:
    workload = write(tmp_path / "w.yaml", {"name": "train", "claims": [wants(4)]})
    flags = ("--nodes", "1", "--machine", "a30-quad")

    with pytest.raises(ConfigError, match=r"pods\[0\]: count is missing, which only --trace can replace"):
        simulate(workload, *flags)
    late = simulate(workload, *flags, "--trace", str(trace), "--hours", "0.01")
    assert "--hours 0.01 ends before the last pods of train come" in " ".join(late.output.split())


def test_what_is_not_known_is_left_out(workload: Path) -> None:
    found = told(workload, "--nodes", "2", "--machine", "a30-quad")

    assert {"cost", "busyHours"}.isdisjoint(found)
    assert "--hours says over how long" in simulate(workload, "--nodes", "2", "--machine", "a30-quad").stdout


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ((), "give --nodes, or start from a cluster with --from-cluster"),
        (("--nodes", "2", "--from-cluster"), "give --nodes, or start from a cluster"),
        (("--from-cluster", "--machine", "t4"), "--machine and --config describe --nodes"),
        (("--nodes", "2"), "give their --machine"),
        (("--nodes", "t4=x"), "give their --machine"),
        (("--nodes", "t4=2", "--machine", "t4"), "--nodes t4=2 is not a number"),
        (("--nodes", "0", "--machine", "t4"), "between 1 and 100,000 nodes"),
        (("--nodes", "t4=0,a30-quad=1"), "between 1 and 100,000 nodes"),
        (("--nodes", "t4=100001"), "between 1 and 100,000 nodes"),
        (("--nodes", "t4[pool]=1"), "pool is not KEY=VALUE"),
        (("--nodes", "t4[pool=a=1"), "give their --machine"),
    ],
)
def test_a_command_line_that_says_nothing_clear_is_refused(
    workload: Path, flags: tuple[str, ...], reason: str
) -> None:
    result = simulate(workload, *flags)

    assert result.exit_code == 2
    assert reason in " ".join(result.output.split())


def test_pods_that_come_after_the_end_are_refused(tmp_path: Path) -> None:
    late = {"name": "late", "count": 3, "every_seconds": 1801, "claims": [wants()]}
    workload = write(tmp_path / "w.yaml", late)

    result = simulate(workload, "--nodes", "1", "--machine", "t4", "--hours", "1")

    assert result.exit_code == 2
    assert "--hours 1 ends before the last pods of late come" in " ".join(result.output.split())
    assert simulate(workload, "--nodes", "1", "--machine", "t4", "--hours", "2").exit_code == 3


@pytest.fixture
def live(tmp_path: Path) -> Iterator[EmbeddedApiServer]:
    """Three nodes with four GPUs: a pod has two of node-a, node-b has a tainted one, node-c is cordoned."""
    with EmbeddedApiServer() as server:
        server.write_kubeconfig(tmp_path / "config")
        for name, spec in (("node-a", {}), ("node-b", {}), ("node-c", {"unschedulable": True})):
            metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            server.create("/api/v1/nodes", head("Node", "v1", metadata, spec=spec))
            for one in plan_node("a30-quad", name, None).slices:
                server.create(f"{DRA}/resourceslices", one)
        selectors = [{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}]
        gpu = head("DeviceClass", "resource.k8s.io/v1", {"name": "ours"}, spec={"selectors": selectors})
        server.create(f"{DRA}/deviceclasses", gpu)
        rule = {
            "deviceSelector": {"pool": "node-b/gpu.nvidia.com", "device": DEVICES[0]},
            "taint": {"key": "service", "effect": "NoSchedule"},
        }
        named = {"name": "service"}
        server.create(
            f"{DRA}/devicetaintrules", head("DeviceTaintRule", "resource.k8s.io/v1", named, spec=rule)
        )
        path = f"{DRA}/namespaces/default/resourceclaims"
        made = server.create(
            path, head("ResourceClaim", "resource.k8s.io/v1", {"name": "theirs"}, spec=wants(2, "ours"))
        )
        results = [
            {"request": "gpus", "driver": "gpu.nvidia.com", "pool": "node-a/gpu.nvidia.com", "device": one}
            for one in DEVICES[:2]
        ]
        status = {"allocation": {"devices": {"results": results}}}
        server.replace(f"{path}/theirs/status", {**made, "status": status})
        yield server


def head(kind: str, version: str, metadata: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


@pytest.mark.usefixtures("live")
def test_a_live_cluster_is_taken_with_what_is_in_use_tainted_and_cordoned(tmp_path: Path) -> None:
    train = {"name": "train", "count": 7, "busy_gpus": 1, "claims": [wants(1, "ours")]}
    workload = write(tmp_path / "w.yaml", train)
    config = ("--from-cluster", "--kubeconfig", str(tmp_path / "config"))

    found = told(workload, *config, "--hours", "1")

    (train,) = found["groups"]
    assert (train["placed"], train["waiting"]) == (5, 2)
    assert [(one["reason"], one["devices"], one["nodes"]) for one in train["why"]] == [
        ("in use by pods of train", 5, 2),
        ("in use by earlier claims", 2, 1),
        ("tainted service:NoSchedule, which the request does not tolerate", 1, 1),
    ]
    assert found["gpus"]["NVIDIA A30"]["inUse"] == 7
    assert "busyHours" not in found


@pytest.mark.usefixtures("live")
def test_other_classes_than_the_clusters_may_be_tried(tmp_path: Path) -> None:
    workload = write(tmp_path / "w.yaml", {"name": "train", "count": 1, "claims": [wants(1, "new")]})
    file = tmp_path / "classes.yaml"
    metadata = {"name": "new"}
    file.write_text(json.dumps(head("DeviceClass", "resource.k8s.io/v1", metadata, spec={})))
    config = ("--from-cluster", "--kubeconfig", str(tmp_path / "config"))

    assert told(workload, *config, "--classes", str(file))["groups"][0]["placed"] == 1
    error = told(workload, *config)["groups"][0]["error"]
    assert error.endswith("the device class new does not exist: create it")


def test_a_cluster_whose_nodes_take_no_pods_is_refused(live: EmbeddedApiServer, tmp_path: Path) -> None:
    for node in live.objects("nodes"):
        live.replace(f"/api/v1/nodes/{node['metadata']['name']}", {**node, "spec": {"unschedulable": True}})
    workload = write(tmp_path / "w.yaml", {"name": "train", "count": 1, "claims": [wants(1, "ours")]})

    with pytest.raises(ConfigError, match="the cluster has no node that takes pods: uncordon one"):
        simulate(workload, "--from-cluster", "--kubeconfig", str(tmp_path / "config"))
