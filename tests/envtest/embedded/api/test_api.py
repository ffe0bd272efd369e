"""The embedded API server answers as kube-apiserver does, as far as the driver can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from driver.kube.client import KubeClient
from driver.kube.errors import Gone, NotFound
from envtest.embedded.server import EmbeddedApiServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PODS = "/api/v1/namespaces/team/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        for name in ("team", "other"):
            running.create("/api/v1/namespaces", {"metadata": {"name": name}})
        yield running


@pytest.fixture
def client(server: EmbeddedApiServer, tmp_path: Path) -> KubeClient:
    return KubeClient.connect(server.write_kubeconfig(tmp_path / "kubeconfig"))


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"schedulerName": "a", "containers": [{"name": "c", "image": "busybox:1"}]},
    }


def resource_slice(name: str, **spec: Any) -> dict[str, Any]:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": name}, "spec": {"driver": "x", "nodeName": "n", "pool": pool, **spec}}


def names(answer: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in answer["items"]]


def test_a_long_list_comes_in_pages_that_end_with_a_compaction(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    for name in "abcde":
        client.create(PODS, pod(name))

    first = client.get(PODS, {"limit": "2"})
    second = client.get(PODS, {"limit": "2", "continue": first["metadata"]["continue"]})

    assert (names(first), names(second)) == (["a", "b"], ["c", "d"])
    assert second["metadata"]["remainingItemCount"] == 1
    server.compact()
    with pytest.raises(Gone):
        client.get(PODS, {"limit": "2", "continue": second["metadata"]["continue"]})


def test_a_disabled_gate_drops_its_fields_and_an_enabled_one_fills_in_the_time(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    def tainted(name: str) -> dict[str, Any]:
        device = {"name": "d", "taints": [{"key": "k", "effect": "NoSchedule"}]}
        return resource_slice(name, devices=[device])

    [kept] = client.create(SLICES, tainted("s"))["spec"]["devices"]
    server.verbs.disabled_gates = frozenset({"DRADeviceTaints"})
    [dropped] = client.create(SLICES, tainted("t"))["spec"]["devices"]

    assert kept["taints"][0]["timeAdded"].endswith("Z")
    assert "taints" not in dropped


def test_the_objects_outlive_a_restart(server: EmbeddedApiServer, client: KubeClient) -> None:
    client.create(PODS, pod("p"))

    server.restart()

    assert names(client.get(PODS)) == ["p"]


def test_only_the_version_that_kubernetes_serves_by_default_is_there(client: KubeClient) -> None:
    client.create(SLICES, resource_slice("s"))

    with pytest.raises(NotFound):
        client.get("/apis/resource.k8s.io/v1beta2/resourceslices/s")
