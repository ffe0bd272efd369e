"""What a request does, and which error each kind of failure becomes."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from driver.kube import errors
from driver.kube.credentials import Credentials
from driver.kube.paths import NODES, RESOURCE_SLICES, claim_path, resource_of
from tests.clusters import EmbeddedApiServer, KubeClient, NotFound, object_path
from tests.eventually import eventually
from tests.gpus import ApiError

NODE_A = object_path(NODES, "a")


def node(name: str, **spec: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}


def test_the_metadata_of_an_object_comes_alone(server: EmbeddedApiServer, client: KubeClient) -> None:
    server.create(
        NODES, {**node("a", podCIDR="10.0.0.0/24"), "metadata": {"name": "a", "labels": {"b": "c"}}}
    )

    found = client.get_metadata(NODE_A)

    assert found["metadata"]["labels"]["b"] == "c"
    assert found["kind"] == "PartialObjectMetadata"
    assert "spec" not in found


@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        (400, errors.BadRequest, False),
        (401, errors.Unauthorized, True),
        (403, errors.Forbidden, False),
        (404, errors.NotFound, False),
        (409, errors.Conflict, True),
        (410, errors.Gone, True),
        (422, errors.Invalid, False),
        (429, errors.TooManyRequests, True),
        (500, errors.Unreachable, True),
        (503, errors.Unreachable, True),
    ],
)
def test_each_answer_becomes_its_error(
    server: EmbeddedApiServer, client: KubeClient, code: int, kind: type[ApiError], retryable: bool
) -> None:
    server.fail("get", "/nodes/a", code=code)

    with pytest.raises(ApiError) as caught:
        client.get(NODE_A)

    assert type(caught.value) is kind
    assert caught.value.retryable is retryable
    assert "/api/v1/nodes/a" in str(caught.value)


def test_creating_what_is_there_is_another_error_than_a_conflict(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    server.create(NODES, node("a"))

    with pytest.raises(errors.AlreadyExists):
        client.create(NODES, node("a"))


def test_a_get_is_repeated_when_the_server_had_closed_the_idle_connection(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    server.create(NODES, node("a"))
    server.fail("get", "/nodes/a", kind="close", times=1)

    assert client.get(NODE_A)["metadata"]["name"] == "a"
    assert server.count("get", "nodes") == 2


def test_a_create_is_never_repeated(server: EmbeddedApiServer, client: KubeClient) -> None:
    server.fail("create", "/nodes", kind="close", times=1)

    with pytest.raises(errors.Unreachable):
        client.create(NODES, node("a"))

    assert server.count("create", "nodes") == 1


def test_a_delete_with_the_uid_of_another_object_is_a_conflict(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    stored = server.create(NODES, node("a"))

    with pytest.raises(errors.Conflict):
        client.delete(NODE_A, uid="another")
    client.delete(NODE_A, uid=stored["metadata"]["uid"])

    assert server.objects("nodes") == []


def test_closing_the_client_ends_a_watch_that_waits(server: EmbeddedApiServer, client: KubeClient) -> None:
    server.create(NODES, node("a"))
    stream = client.watch(NODES, {}, idle_seconds=60)
    events: list[str] = []
    reader = threading.Thread(target=lambda: events.extend(kind for kind, _ in stream))
    reader.start()
    eventually("it watches", lambda: server.count("watch", "nodes"))

    client.close()
    reader.join(5)

    assert not reader.is_alive()
    assert set(events) <= {"ADDED"}


@pytest.mark.parametrize(
    ("url", "resource"),
    [
        (f"https://server:6443{claim_path('team', 'train')}", "resourceclaims"),
        (f"{claim_path('team', 'train')}/status", "resourceclaims"),
        (f"https://server{RESOURCE_SLICES}?watch=true", "resourceslices"),
        ("http://server/api/v1/namespaces/team/events", "events"),
        ("http://server/api/v1/namespaces/team", "namespaces"),
        ("http://server/version", ""),
        ("http://server", ""),
    ],
)
def test_a_url_tells_which_resource_it_is_about(url: str, resource: str) -> None:
    assert resource_of(url) == resource


def test_hostile_names_stay_within_their_path_segment() -> None:
    assert claim_path("a/../b", "x?y#z") == (
        "/apis/resource.k8s.io/v1/namespaces/a%2F..%2Fb/resourceclaims/x%3Fy%23z"
    )
    assert object_path(RESOURCE_SLICES, "../nodes").endswith("/resourceslices/..%2Fnodes")


HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def test_before_the_first_answer_it_is_this_machines(client: KubeClient) -> None:
    assert abs(client.server_time() - datetime.now(UTC)) < MINUTE


@pytest.mark.parametrize("off", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_it_is_the_servers_and_goes_on(server: EmbeddedApiServer, tmp_path: Path, off: timedelta) -> None:
    now = [100.0]
    credentials = Credentials(server.write_kubeconfig(tmp_path / "kubeconfig"))
    client = KubeClient(credentials, "test", clock=lambda: now[0])
    server.ahead_seconds = off.total_seconds()

    with pytest.raises(NotFound):  # a refusal tells the time as well
        client.get("/api/v1/nodes/nobody")

    assert abs(client.server_time() - datetime.now(UTC) - off) < MINUTE
    now[0] += 1800.0
    assert abs(client.server_time() - datetime.now(UTC) - off - HOUR / 2) < MINUTE
