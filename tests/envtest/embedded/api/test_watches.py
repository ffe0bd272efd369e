"""Watches of the embedded API server begin, go on and end as client-go expects."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import PODS, pod

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        yield running


def events(server: EmbeddedApiServer, query: str, accept: str = "application/json") -> list[dict[str, Any]]:
    """All events of a watch that ends at once."""
    connection = http.client.HTTPConnection(server.address, timeout=10)
    try:
        connection.request("GET", f"{PODS}?watch=true&timeoutSeconds=0&{query}", headers={"Accept": accept})
        return [json.loads(line) for line in connection.getresponse().read().splitlines()]
    finally:
        connection.close()


def test_a_list_that_is_streamed_ends_with_a_marked_bookmark(server: EmbeddedApiServer) -> None:
    server.create(PODS, pod("p"))

    added, bookmark = events(
        server, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    )

    assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "p")
    metadata = bookmark["object"]["metadata"]
    assert bookmark["type"] == "BOOKMARK"
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert metadata["resourceVersion"] == str(server.store.resource_version)


def test_a_watch_that_wants_no_initial_events_gets_none(server: EmbeddedApiServer) -> None:
    server.create(PODS, pod("p"))

    assert events(server, "sendInitialEvents=false&resourceVersionMatch=NotOlderThan") == []


def test_initial_events_without_a_match_are_refused(server: EmbeddedApiServer) -> None:
    [answer] = events(server, "sendInitialEvents=true")

    assert answer["code"] == 422


def test_a_version_from_before_the_compaction_is_an_error_event(server: EmbeddedApiServer) -> None:
    then = server.store.resource_version
    server.compact()

    [event] = events(server, f"resourceVersion={then}")

    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_changes_since_a_version_come_as_table_rows_to_who_wants_them(server: EmbeddedApiServer) -> None:
    then = server.store.resource_version
    server.create(PODS, pod("p"))

    [event] = events(server, f"resourceVersion={then}", accept=TABLE)

    assert event["type"] == "ADDED"
    assert event["object"]["kind"] == "Table"
    assert event["object"]["rows"][0]["cells"][:3] == ["p", "0/1", "Pending"]


def test_a_watch_of_one_object_hears_of_no_other(server: EmbeddedApiServer) -> None:
    then = server.store.resource_version
    for name in ("p", "q"):
        server.create(PODS, pod(name))

    found = events(server, f"resourceVersion={then}&fieldSelector=metadata.name%3Dq")

    assert [event["object"]["metadata"]["name"] for event in found] == ["q"]
