"""What is deleted waits for who still needs it, and leaves no trace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import CLAIMS, PODS, ask, claim, pod

NAMESPACES = "/api/v1/namespaces"


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        yield running


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
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}

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


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
KEEPS = "example.com/keeps"


@pytest.mark.parametrize(
    ("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")]
)
def test_without_a_garbage_collector_its_finalizers_keep_an_object(
    server: EmbeddedApiServer, policy: str, finalizer: str
) -> None:
    server.create(CONFIG_MAPS, {"metadata": {"name": "c"}})

    answer = ask(server, "DELETE", f"{CONFIG_MAPS}/c?propagationPolicy={policy}")
    stored = ask(server, "GET", f"{CONFIG_MAPS}/c").body

    assert (answer.code, answer.body) == (200, stored)
    assert stored["metadata"]["finalizers"] == [finalizer]
    assert stored["metadata"]["deletionGracePeriodSeconds"] == 0


def test_most_kinds_answer_a_status_once_the_object_is_gone(server: EmbeddedApiServer) -> None:
    uid = server.create(CONFIG_MAPS, {"metadata": {"name": "c"}})["metadata"]["uid"]
    server.create(CLAIMS, claim("c"))

    plain, devices = ask(server, "DELETE", f"{CONFIG_MAPS}/c"), ask(server, "DELETE", f"{CLAIMS}/c")

    assert plain.body["status"] == "Success"
    assert plain.body["details"] == {"kind": "configmaps", "name": "c", "uid": uid}
    assert devices.body["kind"] == "ResourceClaim"


def test_a_write_without_the_last_finalizer_is_answered_as_it_was_asked_for(
    server: EmbeddedApiServer,
) -> None:
    server.create(CONFIG_MAPS, {"metadata": {"name": "c", "finalizers": [KEEPS]}})
    kept = ask(server, "DELETE", f"{CONFIG_MAPS}/c", {"orphanDependents": False})

    freed = ask(server, "PUT", f"{CONFIG_MAPS}/c", {"metadata": {"name": "c"}})

    assert (kept.code, freed.code) == (202, 200)
    assert "finalizers" not in freed.body["metadata"]
    assert freed.body["metadata"]["resourceVersion"] == kept.body["metadata"]["resourceVersion"]
    assert ask(server, "GET", f"{CONFIG_MAPS}/c").code == 404


def test_a_deleted_collection_is_answered(server: EmbeddedApiServer) -> None:
    for name in "ab":
        server.create(CONFIG_MAPS, {"metadata": {"name": name}})

    answer = ask(server, "DELETE", f"{CONFIG_MAPS}?fieldSelector=metadata.name=a")

    assert answer.body["kind"] == "ConfigMapList"
    assert [one["metadata"]["name"] for one in answer.body["items"]] == ["a"]
    assert [one["metadata"]["name"] for one in server.objects("configmaps")] == ["b"]
