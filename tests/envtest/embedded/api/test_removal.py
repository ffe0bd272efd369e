"""What is deleted takes along what it owned, waits for who still needs it, and leaves no trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import CLAIMS, PODS, SLICES, ask, claim, pod, resource_slice

NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        yield running


def owned(item: dict[str, Any], *owners: dict[str, Any]) -> dict[str, Any]:
    references = [
        {
            "apiVersion": "v1",
            "kind": one["kind"],
            "name": one["metadata"]["name"],
            "uid": one["metadata"]["uid"],
        }
        for one in owners
    ]
    return {**item, "metadata": {**item["metadata"], "ownerReferences": references}}


def test_the_slices_of_a_node_go_with_it(server: EmbeddedApiServer) -> None:
    node = server.create(NODES, {"metadata": {"name": "n"}})
    server.create(SLICES, owned(resource_slice("mine"), node))
    server.create(SLICES, resource_slice("other"))

    server.delete(f"{NODES}/n")

    assert [one["metadata"]["name"] for one in server.objects("resourceslices", "resource.k8s.io")] == [
        "other"
    ]


def test_what_has_another_owner_stays_with_that(server: EmbeddedApiServer) -> None:
    one, two = (server.create(NODES, {"metadata": {"name": name}}) for name in "ab")
    server.create(SLICES, owned(resource_slice("s"), one, two))

    server.delete(f"{NODES}/a")

    [left] = server.objects("resourceslices", "resource.k8s.io")
    assert [owner["name"] for owner in left["metadata"]["ownerReferences"]] == ["b"]


def test_what_is_made_for_an_owner_that_is_gone_goes_at_once(server: EmbeddedApiServer) -> None:
    node = server.create(NODES, {"metadata": {"name": "n"}})
    server.delete(f"{NODES}/n")
    server.create(NODES, {"metadata": {"name": "n"}})  # another node of the same name

    server.create(SLICES, owned(resource_slice("late"), node))

    assert server.objects("resourceslices", "resource.k8s.io") == []


def test_what_belongs_to_a_kind_that_is_not_served_stays(server: EmbeddedApiServer) -> None:
    server.create(SLICES, owned(resource_slice("s"), {"kind": "Rack", "metadata": {"name": "r", "uid": "1"}}))

    assert len(server.objects("resourceslices", "resource.k8s.io")) == 1


def test_orphans_stay_without_an_owner(server: EmbeddedApiServer) -> None:
    node = server.create(NODES, {"metadata": {"name": "n"}})
    server.create(SLICES, owned(resource_slice("s"), node))

    ask(server, "DELETE", f"{NODES}/n?propagationPolicy=Orphan")

    [left] = server.objects("resourceslices", "resource.k8s.io")
    assert "ownerReferences" not in left["metadata"]


def test_an_owned_claim_with_a_finalizer_is_marked_and_waits(server: EmbeddedApiServer) -> None:
    owner = server.create(PODS, pod("p"))
    item = owned(claim("c"), owner)
    item["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    server.create(CLAIMS, item)

    server.delete(f"{PODS}/p")

    [left] = server.objects("resourceclaims", "resource.k8s.io")
    assert "deletionTimestamp" in left["metadata"]


def test_a_pod_on_a_node_waits_for_its_kubelet(server: EmbeddedApiServer) -> None:
    server.create(PODS, pod("p", nodeName="n", terminationGracePeriodSeconds=7))

    marked = ask(server, "DELETE", f"{PODS}/p").body
    shorter = ask(server, "DELETE", f"{PODS}/p", {"gracePeriodSeconds": 3}).body
    last = ask(server, "DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})

    assert [one["metadata"]["deletionGracePeriodSeconds"] for one in (marked, shorter)] == [7, 3]
    assert last.code == 200
    assert server.objects("pods") == []


@pytest.mark.parametrize("status", [None, {"phase": "Succeeded"}, {"phase": "Failed"}])
def test_a_pod_that_runs_nowhere_goes_at_once(
    server: EmbeddedApiServer, status: dict[str, str] | None
) -> None:
    stored = server.create(PODS, pod("p", **({"nodeName": "n"} if status else {})))
    if status:
        server.replace(f"{PODS}/p/status", {**stored, "status": status})

    server.delete(f"{PODS}/p")

    assert server.objects("pods") == []


def test_a_namespace_that_ends_takes_nothing_new_and_stays_until_it_is_finalized(
    server: EmbeddedApiServer,
) -> None:
    team = f"{NAMESPACES}/team"
    server.create(NAMESPACES, {"metadata": {"name": "team"}})
    server.create(f"{team}/configmaps", {"metadata": {"name": "old"}})

    first, again = ask(server, "DELETE", team), ask(server, "DELETE", team)
    refused = ask(server, "POST", f"{team}/configmaps", {"metadata": {"name": "new"}})
    changed = ask(server, "PUT", f"{team}/configmaps/old", {"metadata": {"name": "old"}, "data": {"a": "b"}})
    replaced = ask(server, "PUT", team, {"metadata": {"name": "team", "labels": {"a": "b"}}})
    finalized = ask(server, "PUT", f"{team}/finalize", {"metadata": {"name": "team"}, "spec": {}})

    assert (first.code, again.code, changed.code, replaced.code, finalized.code) == (200,) * 5
    assert first.body["status"]["phase"] == "Terminating"
    assert first.body == again.body
    assert "deletionGracePeriodSeconds" not in first.body["metadata"]
    assert refused.code == 403
    words = "unable to create new content in namespace team because it is being terminated"
    assert refused.body["message"] == f'configmaps "new" is forbidden: {words}'
    cause = {"reason": "NamespaceTerminating", "field": "metadata.namespace"}
    assert refused.body["details"]["causes"] == [{**cause, "message": "namespace team is being terminated"}]
    assert replaced.body["spec"] == {"finalizers": ["kubernetes"]}
    assert ask(server, "GET", team).code == 404


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_the_namespaces_of_every_cluster_cannot_be_deleted(server: EmbeddedApiServer, name: str) -> None:
    answer = ask(server, "DELETE", f"{NAMESPACES}/{name}")

    assert answer.code == 403
    assert answer.body["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


def test_another_uid_is_another_object(server: EmbeddedApiServer) -> None:
    server.create(PODS, pod("p"))

    answer = ask(server, "DELETE", f"{PODS}/p", {"preconditions": {"uid": "another"}})

    assert answer.code == 409


def test_a_pod_is_bound_once_and_evicted(server: EmbeddedApiServer) -> None:
    server.create(PODS, pod("p"))
    binding = {"target": {"kind": "Node", "name": "n"}}

    first = ask(server, "POST", f"{PODS}/p/binding", binding)
    again = ask(server, "POST", f"{PODS}/p/binding", binding)
    [stored] = server.objects("pods")
    eviction = {"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 0}}
    gone = ask(server, "POST", f"{PODS}/p/eviction", eviction)

    assert (first.code, again.code, gone.code) == (201, 409, 201)
    assert stored["spec"]["nodeName"] == "n"
    assert stored["status"]["conditions"][0]["type"] == "PodScheduled"
    assert server.objects("pods") == []


def test_a_claim_that_loses_its_devices_loses_what_was_said_of_them(server: EmbeddedApiServer) -> None:
    stored = server.create(CLAIMS, claim("c"))
    device = {"driver": "a.example.com", "pool": "p", "device": "d"}
    allocation = {"devices": {"results": [{"request": "gpu", **device}]}}
    status = {"allocation": allocation, "devices": [{**device, "conditions": []}]}
    stored = server.replace(f"{CLAIMS}/c/status", {**stored, "status": status})

    freed = server.replace(f"{CLAIMS}/c/status", {**stored, "status": {"devices": status["devices"]}})

    assert freed["status"] == {}
