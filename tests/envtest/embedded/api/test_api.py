"""The embedded API server answers as kube-apiserver does, as far as the driver can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from driver.kube.client import KubeClient
from driver.kube.errors import BadRequest, Conflict, Gone, Invalid, NotFound
from envtest.embedded.server import EmbeddedApiServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PODS = "/api/v1/namespaces/team/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
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


def test_a_created_object_gets_identity_and_a_first_generation(client: KubeClient) -> None:
    stored = client.create(PODS, {**pod("p"), "status": {"phase": "Running"}})

    metadata = stored["metadata"]
    assert (metadata["namespace"], metadata["generation"]) == ("team", 1)
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert stored["status"]["phase"] == "Pending"


def test_a_generated_name_has_58_characters_of_its_base_and_five_more(client: KubeClient) -> None:
    item = pod("")
    item["metadata"] = {"generateName": "x" * 80}

    stored = client.create(PODS, item)

    assert len(stored["metadata"]["name"]) == 63


def test_an_object_without_any_name_is_invalid(client: KubeClient) -> None:
    item = pod("")
    item["metadata"] = {}

    with pytest.raises(Invalid):
        client.create(PODS, item)


def test_only_a_changed_spec_is_a_new_generation_and_nothing_new_is_no_write(client: KubeClient) -> None:
    first = client.create(PODS, pod("p"))
    same = client.replace(f"{PODS}/p", first)
    labelled = client.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json")
    sooner = {"spec": {"activeDeadlineSeconds": 60}}
    changed = client.patch(f"{PODS}/p", sooner, "application/merge-patch+json")

    assert same == first
    assert [one["metadata"]["generation"] for one in (first, labelled, changed)] == [1, 1, 2]


def test_an_update_from_an_old_version_or_of_another_uid_is_a_conflict(client: KubeClient) -> None:
    first = client.create(PODS, pod("p"))
    client.replace(f"{PODS}/p", {**first, "spec": {**first["spec"], "activeDeadlineSeconds": 60}})

    with pytest.raises(Conflict):
        client.replace(f"{PODS}/p", first)
    with pytest.raises(Conflict):
        client.replace(f"{PODS}/p", {**pod("p"), "metadata": {"name": "p", "uid": "another"}})


def test_status_is_written_through_its_subresource_alone(client: KubeClient) -> None:
    item = client.create(CLAIMS, {"metadata": {"name": "c"}, "spec": {"devices": {}}})
    item["status"] = {"allocation": {}}
    item["spec"] = {"devices": {"requests": []}}

    by_status = client.replace(f"{CLAIMS}/c/status", item)
    by_main = client.replace(
        f"{CLAIMS}/c", {**by_status, "status": {"reservedFor": []}, "metadata": {"name": "c"}}
    )

    assert by_status["spec"] == {"devices": {"requests": None}}
    assert by_status["status"] == by_main["status"] == {"allocation": {"devices": {}}}


def test_lists_are_selected_by_fields_and_labels(client: KubeClient) -> None:
    for name, label in (("p", "x"), ("q", "y"), ("r", "x")):
        client.create(PODS, pod(name, app=label))
    client.create("/api/v1/namespaces/other/pods", pod("s", app="x"))

    assert names(client.get("/api/v1/pods")) == ["s", "p", "q", "r"]
    assert names(client.get(PODS, {"labelSelector": "app=x"})) == ["p", "r"]
    assert names(client.get(PODS, {"labelSelector": "app in (y,z)"})) == ["q"]
    assert names(client.get(PODS, {"labelSelector": "app notin (y), !none"})) == ["p", "r"]
    assert names(client.get(PODS, {"fieldSelector": "metadata.name!=p,spec.schedulerName=a"})) == ["q", "r"]
    with pytest.raises(BadRequest):
        client.get(PODS, {"fieldSelector": "spec.unknown=a"})


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


def test_a_finalizer_keeps_a_deleted_object_until_it_is_removed(client: KubeClient) -> None:
    item = pod("p")
    item["metadata"]["finalizers"] = ["example.com/keep"]
    client.create(PODS, item)

    client.delete(f"{PODS}/p")
    assert "deletionTimestamp" in client.get(f"{PODS}/p")["metadata"]
    client.patch(f"{PODS}/p", {"metadata": {"finalizers": None}}, "application/merge-patch+json")

    with pytest.raises(NotFound):
        client.get(f"{PODS}/p")


def test_a_watch_shows_what_moves_in_and_out_of_its_selection(client: KubeClient) -> None:
    start = client.get(PODS)["metadata"]["resourceVersion"]
    client.create(PODS, pod("p", app="x"))
    for value in ("y", "x", "x"):
        patch = {"metadata": {"labels": {"app": value, "round": value}}}
        client.patch(f"{PODS}/p", patch, "application/merge-patch+json")
    client.delete(f"{PODS}/p")

    params = {"resourceVersion": start, "labelSelector": "app=x", "timeoutSeconds": "-1"}
    kinds = [kind for kind, _ in client.watch(PODS, params, idle_seconds=10)]

    assert kinds == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]


def test_a_watch_without_a_version_begins_with_what_is_there(client: KubeClient) -> None:
    client.create(PODS, pod("p"))

    events = list(client.watch(PODS, {"timeoutSeconds": "-1"}, idle_seconds=10))

    assert [(kind, item["metadata"]["name"]) for kind, item in events] == [("ADDED", "p")]


def test_a_json_patch_is_applied_in_order_or_not_at_all(client: KubeClient) -> None:
    client.create(PODS, pod("p"))
    path = "/metadata/annotations"

    client.patch(
        f"{PODS}/p",
        [
            {"op": "add", "path": path, "value": {}},
            {"op": "add", "path": f"{path}/a~1b", "value": "c"},
        ],
        "application/json-patch+json",
    )
    with pytest.raises(Invalid):
        client.patch(
            f"{PODS}/p",
            [{"op": "remove", "path": path}, {"op": "test", "path": "/kind", "value": "Node"}],
            "application/json-patch+json",
        )

    assert client.get(f"{PODS}/p")["metadata"]["annotations"] == {"a/b": "c"}


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
