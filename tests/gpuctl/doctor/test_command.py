"""``gpuctl doctor`` tells a line for each check, and its exit code whether one failed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from envtest.embedded.server import EmbeddedApiServer
from fakegpu.driver_files.driver_root import build_driver_root, build_sysfs
from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.__main__ import commands
from gpuctl.doctor.check import Result as Found
from gpuctl.doctor.check import run_checks
from gpuctl.doctor.inside.checks import INSIDE
from gpuctl.doctor.outside.checks import OUTSIDE
from gpuctl.doctor.report import picture, problems, read_results
from gpuctl.plan.planned import plan_node
from tests.gpuctl.approved import approve
from tests.gpuctl.doctor.clusters import NODE, driver_pod, node, run_pod, well_cluster
from tests.gpuctl.doctor.nodes import well_node
from tests.gpuctl.doctor.programs import FakeKubectl
from tests.gpuctl.documents import read_document

SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@dataclass(frozen=True, slots=True)
class Cluster:
    """An API server with a node and its slices, and the variables by which ``--local`` finds its files."""

    server: EmbeddedApiServer
    kubeconfig: str
    environment: dict[str, str]

    def doctor(self, *arguments: str) -> Result:
        runner = CliRunner()
        return runner.invoke(
            commands, ["doctor", *arguments, "--kubeconfig", self.kubeconfig], catch_exceptions=False
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    machine = FakeMachine.open("hgx-h100")
    root, sysfs = build_driver_root(tmp_path / "driver", machine), build_sysfs(tmp_path, machine)
    folders = {name: tmp_path / name for name in ("plugins", "registry", "cdi", "mps")}
    for folder in folders.values():
        folder.mkdir()
    environment = {
        "GPU_DRA_DRIVER_ROOT": str(root),
        "GPU_DRA_HOST_ROOT": str(tmp_path),
        "GPU_DRA_SYSFS_ROOT": str(sysfs),
        "GPU_DRA_NVML": "fake:hgx-h100",
        **{f"GPU_DRA_{name.upper()}_DIR": str(folder) for name, folder in folders.items()},
    }
    with EmbeddedApiServer() as server:
        server.create("/api/v1/nodes", node())
        for item in plan_node("hgx-h100", NODE, None).slices:
            server.create(SLICES, item)
        yield Cluster(server, str(server.write_kubeconfig(tmp_path / "config")), environment)


def results(outcome: Result) -> list[Any]:
    found: list[Any] = read_document(outcome.stdout, "DoctorReport")["results"]
    return found


@pytest.mark.parametrize("words", [(), ("-o", "wide"), (NODE,)], ids=["cluster", "wide", "node"])
def test_what_is_wrong_is_told(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    kubectl = FakeKubectl(tmp_path / "bin", cluster.environment)
    monkeypatch.setenv("PATH", str(kubectl.folder), prepend=":")
    run_pod(cluster.server, driver_pod("kubeletplugin"))

    outcome = cluster.doctor(*words)

    approve(
        f"doctor/problems-{words[-1] if words else 'cluster'}", outcome.output.replace(str(tmp_path), "DIR")
    )
    assert outcome.exit_code == 1


def test_before_an_installation_that_is_what_is_told(tmp_path: Path) -> None:
    with EmbeddedApiServer() as server:
        words = ["doctor", "--kubeconfig", str(server.write_kubeconfig(tmp_path / "config"))]
        approve("doctor/before-installation", CliRunner().invoke(commands, words).output)


@pytest.mark.parametrize("wide", [False, True], ids=["short", "wide"])
def test_where_all_is_well_little_is_told(wide: bool) -> None:
    found = (*run_checks("cluster", OUTSIDE, well_cluster()), *run_checks("node/node-a", INSIDE, well_node()))

    text = picture(found, wide=True) if wide else problems(found)
    approve(f"doctor/well-{'wide' if wide else 'short'}", f"{text}\n")


def test_every_check_from_outside_has_its_line(cluster: Cluster) -> None:
    found = results(cluster.doctor("-o", "json"))

    assert [one["check"] for one in found] == [check.name for check in OUTSIDE]
    assert {one["place"] for one in found} == {"cluster"}


def test_a_node_is_looked_at_in_the_pod_of_its_plugin(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = FakeKubectl(tmp_path / "bin", cluster.environment)
    monkeypatch.setenv("PATH", str(kubectl.folder), prepend=":")
    run_pod(cluster.server, driver_pod("kubeletplugin"))

    found = results(cluster.doctor(NODE, "-o", "json"))

    inside = {one["check"]: one for one in found if one["place"] == f"node/{NODE}"}
    assert inside.keys() == {check.name for check in INSIDE}
    assert inside["nvml"]["status"] == "ok"
    assert inside["plugin"]["status"] == "fail"
    [call] = kubectl.calls
    where = ["--namespace", "gpu-dra", "gpu-dra-kubeletplugin-x", "--container", "driver"]
    words = ["gpuctl", "doctor", "--local", "-o", "json"]
    assert call == ["--kubeconfig", cluster.kubeconfig, "exec", *where, "--", *words]


def test_the_doctor_in_the_pod_is_told_what_is_offered_to_virtual_machines(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = FakeKubectl(tmp_path / "bin", cluster.environment)
    monkeypatch.setenv("PATH", str(kubectl.folder), prepend=":")
    run_pod(cluster.server, driver_pod("kubeletplugin"))
    [stored] = cluster.server.objects("resourceslices", "resource.k8s.io")
    for device in stored["spec"]["devices"]:
        device["attributes"]["type"] = {"string": "vfio"}
    cluster.server.replace(f"{SLICES}/{stored['metadata']['name']}", stored)

    found = {one["check"]: one for one in results(cluster.doctor(NODE, "-o", "json"))}

    [call] = kubectl.calls
    assert call[-2:] == ["--offers", "passthrough"]
    assert found["vfio-safety"]["status"] != "fail"
    assert found["iommu"]["status"] == "ok"


def test_without_a_pod_or_kubectl_the_inside_is_skipped_and_says_why(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no pod with gpu-dra-kubeletplugin runs on node-a" in cluster.doctor(NODE).output
    run_pod(cluster.server, driver_pod("kubeletplugin"))

    assert "warn    inside: kubectl is not on the PATH" in cluster.doctor(NODE).output


def test_kubectl_that_fails_is_told_in_its_own_words(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = ["/bin/sh", "-c", "echo 'error: forbidden: pods/exec' >&2; exit 1"]
    kubectl = FakeKubectl(tmp_path / "bin", {}, refusing)
    monkeypatch.setenv("PATH", str(kubectl.folder), prepend=":")
    run_pod(cluster.server, driver_pod("kubeletplugin"))

    [inside] = [one for one in results(cluster.doctor(NODE, "-o", "json")) if one["check"] == "inside"]

    assert inside["status"] == "warn"
    assert "error: forbidden: pods/exec" in inside["message"]


def test_a_node_looks_at_itself_without_a_cluster(cluster: Cluster) -> None:
    outcome = CliRunner().invoke(commands, ["doctor", "--local", "-o", "json"], env=cluster.environment)

    found = {one["check"]: one["status"] for one in results(outcome)}
    assert list(found) == [check.name for check in INSIDE]
    assert found["driver-root"] == found["nvml"] == found["device-nodes"] == "ok"
    assert outcome.exit_code == 1


def test_local_takes_no_node() -> None:
    assert CliRunner().invoke(commands, ["doctor", "--local", "node-a"]).exit_code == 2


def test_what_is_meant_is_shown_in_part_and_with_wide_all() -> None:
    found = [Found("cluster", "taints", "warn", "9 devices", "look", tuple(f"device {n}" for n in range(9)))]

    short, wide = problems(found), picture(found, wide=True)

    assert "        - device 5\n        - and 3 more; -o wide shows all\n" in short
    assert "        - device 8\n        what to do: look\n" in wide
    assert wide.endswith("1 check: 1 warn")


def test_a_report_of_another_version_is_read_as_far_as_it_is_known() -> None:
    one = {"check": "new", "status": "ok", "message": "fine", "place": "node", "since": "tomorrow"}

    assert read_results(json.dumps({"results": [one]}).encode(), "node/a") == (
        Found("node/a", "new", "ok", "fine"),
    )
