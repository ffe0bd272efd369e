"""Events reach people, and never get in the way of whoever posts them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tests.clusters import EmbeddedApiServer, EventRecorder, KubeClient, Object, Reference
from tests.eventually import eventually
from tests.gpus import EventReason
from tests.running import running

NODE = Reference("v1", "Node", "node-a", "uid-of-a")
CLAIM = Reference("resource.k8s.io/v1", "ResourceClaim", "claim", "uid-of-claim", "team")


@contextmanager
def recording(client: KubeClient) -> Iterator[EventRecorder]:
    recorder = EventRecorder(client, "gpu-dra-test", "node-a")
    with running(recorder.run, recorder.stop):
        yield recorder


def posted(server: EmbeddedApiServer) -> list[Object]:
    return server.objects("events")


def test_an_event_of_a_claim_says_what_it_is_about_and_who_tells_it(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    server.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    with recording(client) as recorder:
        recorder.post(CLAIM, EventReason.PREPARE_FAILED, "no such device")

    [event] = posted(server)
    assert event["metadata"]["namespace"] == "team"
    about = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "name": "claim"}
    assert event["involvedObject"] == {**about, "namespace": "team", "uid": "uid-of-claim"}
    said = (event["type"], event["reason"], event["message"])
    assert said == ("Warning", "PrepareFailed", "no such device")
    assert event["source"] == {"component": "gpu-dra-test", "host": "node-a"}


def test_the_same_event_again_raises_the_count(server: EmbeddedApiServer, client: KubeClient) -> None:
    with recording(client) as recorder:
        for _ in range(3):
            recorder.post(NODE, EventReason.GPU_WITHHELD, "again")
        recorder.post(NODE, EventReason.GPU_WITHHELD, "something else")

    found = posted(server)
    assert sorted((one["message"], one["count"]) for one in found) == [("again", 3), ("something else", 1)]
    assert {one["metadata"]["namespace"] for one in found} == {"default"}
    assert not any("namespace" in one["involvedObject"] for one in found)


def test_an_event_that_expired_in_between_is_written_anew(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    with recording(client) as recorder:
        recorder.post(NODE, EventReason.GPU_WITHHELD, "again")
        eventually("the event is written", lambda: posted(server))
        server.delete("/api/v1/namespaces/default/events")
        recorder.post(NODE, EventReason.GPU_WITHHELD, "again")

    assert [event["count"] for event in posted(server)] == [1]


def test_what_one_namespace_uses_up_is_not_taken_from_another(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    """A tenant with many claims that fail kept the others from hearing of theirs."""

    for name in ("noisy", "team"):
        server.create("/api/v1/namespaces", {"metadata": {"name": name}})
    with recording(client) as recorder:
        for number in range(12):
            claim = replace(CLAIM, name=f"c-{number}", uid=f"uid-{number}", namespace="noisy")
            for attempt in range(25):
                recorder.post(claim, EventReason.PREPARE_FAILED, f"attempt {attempt}")
            eventually("all are taken", recorder._queue.qsize, lambda waiting: waiting == 0)  # noqa: SLF001 - it drops what is too many
        recorder.post(CLAIM, EventReason.PREPARE_FAILED, "no such device")

    found = [event["metadata"]["namespace"] for event in posted(server)]
    assert 250 <= found.count("noisy") < 300
    assert found.count("team") == 1


def test_a_long_message_is_cut_between_characters(server: EmbeddedApiServer, client: KubeClient) -> None:
    with recording(client) as recorder:
        recorder.post(NODE, EventReason.GPU_WITHHELD, "ü" * 2000)

    [event] = posted(server)
    assert len(event["message"].encode()) <= 1024
    assert event["message"].endswith("ü…")


def test_posting_neither_waits_nor_fails_while_the_server_is_away(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    server.stop()
    with recording(client) as recorder:
        for number in range(1000):
            recorder.post(NODE, EventReason.GPU_WITHHELD, f"number {number}")

    assert posted(server) == []


def test_it_ends_although_its_queue_was_too_full_to_be_told(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    recorder = EventRecorder(client, "gpu-dra-test", "node-a")
    for number in range(300):
        recorder.post(NODE, EventReason.GPU_WITHHELD, f"number {number}")
    recorder.stop()

    thread = threading.Thread(target=recorder.run, daemon=True)
    thread.start()
    thread.join(30)

    assert not thread.is_alive()
    assert len(posted(server)) >= 25


def test_an_event_waits_for_a_server_that_comes_back(server: EmbeddedApiServer, client: KubeClient) -> None:
    server.fail("create", "/events", code=503, times=2)
    with recording(client) as recorder:
        recorder.post(NODE, EventReason.GPU_WITHHELD, "later")

        assert len(eventually("the event is written", lambda: posted(server))) == 1


def test_events_tell_the_servers_time_where_the_clock_of_the_node_is_an_hour_off(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    server.ahead_seconds = 3600.0
    client.get("/api/v1/namespaces")
    with recording(client) as recorder:
        recorder.post(NODE, EventReason.DEVICE_PLUGIN_GONE, "all is well")

    [event] = posted(server)
    told = datetime.fromisoformat(event["firstTimestamp"])
    assert timedelta(minutes=59) < told - datetime.now(UTC) < timedelta(minutes=61)
