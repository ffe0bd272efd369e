"""``gpuctl doctor`` tells a line for each check, and its exit code whether one failed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuctl.doctor.check import Check, run_checks
from gpuctl.doctor.check import Result as Found
from gpuctl.doctor.inside.checks import INSIDE
from gpuctl.doctor.outside.checks import OUTSIDE
from gpuctl.doctor.report import picture, problems
from tests.clusters import PACKAGE_ROOT, ApiClient, EmbeddedApiServer, commands, plan_node
from tests.gpuctl.approved import approve
from tests.gpuctl.doctor.clusters import NODE, daemon_set, driver_pod, node, run_pod, well_cluster
from tests.gpuctl.doctor.nodes import well_node
from tests.gpuctl.doctor.programs import FakeKubectl
from tests.gpuctl.documents import read_document
from tests.gpuctl.verify.subjects import flags_of, machine_in, places_of

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
    flags = flags_of(places_of(tmp_path, machine_in(tmp_path, "hgx-h100")))
    environment = {f"GPU_DRA_{name.upper()}": value for name, value in flags.items()}
    with EmbeddedApiServer() as server:
        ApiClient(server.url, None, server.gate.admin_bearer).apply(PACKAGE_ROOT / "deploy/rbac.yaml")
        server.create("/api/v1/nodes", node())
        for item in plan_node("hgx-h100", NODE, None).slices:
            server.create(SLICES, item)
        yield Cluster(server, str(server.write_kubeconfig(tmp_path / "config")), environment)


def results(outcome: Result) -> list[Any]:
    found: list[Any] = read_document(outcome.stdout, "DoctorReport")["results"]
    return found


@pytest.fixture
def kubectl(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKubectl:
    """kubectl, and the pod of the plugin in which it runs gpuctl."""
    kubectl = FakeKubectl(tmp_path / "bin", cluster.environment)
    monkeypatch.setenv("PATH", str(kubectl.folder), prepend=":")
    run_pod(cluster.server, driver_pod("kubeletplugin"))
    return kubectl


@pytest.mark.usefixtures("kubectl")
@pytest.mark.parametrize("words", ["", "-o wide", NODE])
def test_what_is_wrong_is_told(cluster: Cluster, tmp_path: Path, words: str) -> None:
    outcome = cluster.doctor(*words.split())

    name = words.rpartition(" ")[2] or "cluster"
    approve(f"doctor/problems-{name}", outcome.output.replace(str(tmp_path), "DIR"))
    assert outcome.exit_code == 3


def test_before_an_installation_that_is_what_is_told(tmp_path: Path) -> None:
    with EmbeddedApiServer() as server:
        words = ["doctor", "--kubeconfig", str(server.write_kubeconfig(tmp_path / "config"))]
        approve("doctor/before-installation", CliRunner().invoke(commands, words).output)


@pytest.mark.parametrize(("name", "shown"), [("short", problems), ("wide", partial(picture, wide=True))])
def test_where_all_is_well_little_is_told(name: str, shown: Callable[[Sequence[Found]], str]) -> None:
    found = (*run_checks("cluster", OUTSIDE, well_cluster()), *run_checks("node/node-a", INSIDE, well_node()))

    approve(f"doctor/well-{name}", f"{shown(found)}\n")


def test_a_node_is_looked_at_in_the_pod_of_its_plugin(cluster: Cluster, kubectl: FakeKubectl) -> None:
    [stored] = cluster.server.objects("resourceslices", "resource.k8s.io")
    for device in stored["spec"]["devices"]:
        device["attributes"]["type"] = {"string": "vfio"}
    cluster.server.replace(f"{SLICES}/{stored['metadata']['name']}", stored)

    found = results(cluster.doctor(NODE, "-o", "json"))

    expected: dict[str, Sequence[Check[Any]]] = {"cluster": OUTSIDE, f"node/{NODE}": INSIDE}
    assert [(one["place"], one["check"]) for one in found] == [
        (place, check.name) for place, checks in expected.items() for check in checks
    ]
    [call] = kubectl.calls
    where = ["--namespace", "gpu-dra", "gpu-dra-kubeletplugin-x", "--container", "driver"]
    words = ["gpuctl", "doctor", "--local", "-o", "json", "--offers", "passthrough"]
    assert call == ["--kubeconfig", cluster.kubeconfig, "exec", *where, "--", *words]


def test_a_node_that_cannot_be_looked_at_is_a_warning(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def inside() -> str:
        outcome = cluster.doctor(NODE).output
        return outcome[outcome.index(f"node/{NODE}\n") : outcome.rindex("\n\n")] + "\n"

    monkeypatch.setenv("PATH", str(tmp_path))
    told = [inside()]
    excluding = daemon_set("kubeletplugin", nodeSelector={"pool": "train"})
    labels = {"name": "x"}
    excluding["spec"] |= {"selector": {"matchLabels": labels}}
    excluding["spec"]["template"]["metadata"] = {"labels": labels}
    cluster.server.create(
        "/apis/apps/v1/namespaces/default/daemonsets", {**excluding, "metadata": {"name": "x"}}
    )
    told.append(inside())
    run_pod(cluster.server, driver_pod("kubeletplugin"))
    told.append(inside())
    refusing = ["/bin/sh", "-c", "echo 'error: forbidden: pods/exec' >&2; exit 1"]
    monkeypatch.setenv("PATH", str(FakeKubectl(tmp_path / "bin", {}, refusing).folder), prepend=":")

    approve("doctor/node-not-read", "".join((*told, inside())))


def test_a_node_looks_at_itself_without_a_cluster(cluster: Cluster) -> None:
    outcome = CliRunner().invoke(commands, ["doctor", "--local", "-o", "json"], env=cluster.environment)

    assert [one["check"] for one in results(outcome)] == [check.name for check in INSIDE]
    assert outcome.exit_code == 3
    assert CliRunner().invoke(commands, ["doctor", "--local", "node-a"]).exit_code == 2
