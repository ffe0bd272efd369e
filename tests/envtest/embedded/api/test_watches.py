"""Watches of the embedded API server begin, go on and end as client-go expects."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from envtest.embedded.api import store, watching
from tests.clusters import EmbeddedApiServer, Object
from tests.envtest.embedded.api.api_calls import PODS, shown
from tests.eventually import eventually


@contextmanager
def watch_of(server: EmbeddedApiServer, query: str) -> Iterator[Iterator[Object]]:
    """The events of a watch that goes on; at the end the client leaves."""
    connection = http.client.HTTPConnection(server.address, timeout=10)
    try:
        begun = server.watches
        connection.request("GET", f"{PODS}?watch=true&{query}", headers=shown(server))
        answer = connection.getresponse()
        eventually("the watch has begun", lambda: server.watches, lambda count: count > begun)
        yield (json.loads(line) for line in answer)
    finally:
        connection.close()
        answer.close()


def test_a_watch_gets_a_bookmark_before_its_time_is_up(
    server: EmbeddedApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_LAST_BOOKMARK_SECONDS", 599.99)
    now = server.store.resource_version
    query = f"resourceVersion={now}&allowWatchBookmarks=true&timeoutSeconds=600"

    with watch_of(server, query) as lines:
        event = next(lines)

    assert (event["type"], event["object"]["metadata"]) == ("BOOKMARK", {"resourceVersion": str(now)})


def test_a_watch_that_fell_behind_ends_with_the_error_of_a_version_that_is_too_old(
    server: EmbeddedApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_KEPT_CHANGES", 3)
    with watch_of(server, f"resourceVersion={server.store.resource_version}") as lines:
        # All in one go: the watch cannot look in between.
        with server.store.changed:
            for number in range(10):
                server.store.put(("", "pods"), ("", "p"), {"metadata": {"name": "p", "n": "x" * number}})

        [event] = lines

    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
