"""``gpuctl explain`` takes one object, several, or all of a kind, in the namespaces that the flags say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.clusters import EmbeddedApiServer, commands, plan_node
from tests.gpuctl.cli.kubeconfigs import BEARER, kubeconfig
from tests.gpuctl.documents import read_document
from tests.gpus import ConfigError

DRA = "/apis/resource.k8s.io/v1"


class Cluster:
    """A cluster with a node of four GPUs; ``run`` explains something, with the context's namespace team."""

    def __init__(self, server: EmbeddedApiServer, folder: Path) -> None:
        self.server = server
        server.gate.admin_bearer = BEARER
        self._kubeconfig = kubeconfig(folder / "config", server.url, here="team")
        server.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
        server.create("/api/v1/nodes", {"metadata": {"name": "node-a"}})
        server.create(f"{DRA}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
        for item in plan_node("a30-quad", "node-a", None).slices:
            server.create(f"{DRA}/resourceslices", item)

    def claim(self, name: str, count: int, namespace: str = "team") -> None:
        """A claim for so many GPUs."""
        exactly = {"deviceClassName": "gpu", "count": count}
        spec = {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}
        path = f"{DRA}/namespaces/{namespace}/resourceclaims"
        self.server.create(path, {"metadata": {"name": name}, "spec": spec})

    def pod(self, name: str, claim: str | None, namespace: str = "team") -> None:
        """A pod that uses a claim, or asks for nothing."""
        claims = [{"name": "gpus", "resourceClaimName": claim}] if claim else []
        spec = {"containers": [{"name": "main", "image": "x"}], "resourceClaims": claims}
        body = {"metadata": {"name": name}, "spec": spec}
        self.server.create(f"/api/v1/namespaces/{namespace}/pods", body)

    def run(self, *arguments: str) -> Result:
        command = ["explain", *arguments, "--kubeconfig", str(self._kubeconfig)]
        return CliRunner().invoke(commands, command)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with EmbeddedApiServer() as server:
        cluster = Cluster(server, tmp_path)
        for name, count in (("small", 1), ("large", 9)):
            cluster.claim(name, count)
            cluster.pod(f"{name}-pod", name)
        cluster.pod("bystander", None)
        cluster.claim("far", 9, "default")
        cluster.pod("far-pod", "far", "default")
        yield cluster


def test_one_object_is_a_document_and_several_are_a_list(cluster: Cluster) -> None:
    one = read_document(cluster.run("claim", "small", "-o", "json").output, "Explanation")
    two = read_document(cluster.run("claim/small", "pod/large-pod", "-o", "json").output, "ExplanationList")

    assert one["object"] == {"kind": "ResourceClaim", "namespace": "team", "name": "small"}
    assert one["verdict"] == "fits"
    assert [item["object"]["kind"] for item in two["items"]] == ["ResourceClaim", "Pod"]


def test_names_are_printed_for_other_commands(cluster: Cluster) -> None:
    assert cluster.run("claims", "-o", "name").output == (
        "resourceclaim.resource.k8s.io/large\nresourceclaim.resource.k8s.io/small\n"
    )
    assert cluster.run("claims", "-A", "-o", "name").output.split()[0].endswith("/far")
    assert cluster.run("pods", "-n", "default", "-o", "name").output == "pod/far-pod\n"


def test_what_may_not_be_read_is_said(cluster: Cluster) -> None:
    cluster.server.fail("list", "/api/v1/nodes", code=403)

    told = cluster.run("claim", "large", "-o", "json")

    assert (told.exit_code, read_document(told.output, "Explanation")["unread"]) == (3, ["nodes"])


def test_a_name_has_one_namespace(cluster: Cluster) -> None:
    told: Any = cluster.run("pod", "far-pod", "-A")
    missing = cluster.run("pod", "far-pod").exception

    assert told.exit_code == 2
    assert "an object has one namespace" in told.stderr
    assert isinstance(missing, ConfigError)
    assert str(missing).startswith("there is no pod team/far-pod: name its namespace with -n")
