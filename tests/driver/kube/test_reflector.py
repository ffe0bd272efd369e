"""The reflector's copy stays true through everything that can happen to a watch, and never spins."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from driver.kube.reflector import Reflector, Selection
from tests.clusters import Backoff, EmbeddedApiServer, Forbidden, KubeClient, Object
from tests.driver.kube.raw_server import Conversation, RawServer, client_of
from tests.driver.kube.stops import CountingStop
from tests.eventually import eventually
from tests.gpus import ApiError
from tests.running import running as in_a_thread

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
ON_NODE_A = Selection(SLICES, {"spec.nodeName": "a"}, {})


def slice_of(name: str, node: str = "a", pool: str = "p", generation: int = 1) -> Object:
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}}
    of_pool = {"name": pool, "generation": generation, "resourceSliceCount": 1}
    return {**head, "spec": {"driver": "d", "nodeName": node, "pool": of_pool}}


class Running:
    """A reflector in a thread of its own, and what it told."""

    def __init__(self, client: KubeClient, selection: Selection) -> None:

        self.events: list[tuple[str, str]] = []
        self.lists = 0
        self.stop = threading.Event()
        self.reflector = Reflector(
            client,
            selection,
            self.stop,
            on_event=self._heard,
            on_list=self._listed,
            backoff=Backoff(0.01, 0.05),
        )

    def _heard(self, kind: str, item: Object) -> None:
        self.events.append((kind, item["metadata"]["name"]))

    def _listed(self, _objects: int) -> None:
        self.lists += 1

    def end(self) -> None:
        self.stop.set()
        self.reflector.wake()

    def names(self) -> set[str]:
        return {item["metadata"]["name"] for item in self.reflector.snapshot()[0]}

    def comes_to(self, *names: str) -> None:
        eventually(f"it knows {names}", self.names, lambda known: known == set(names))

    def hears(self, *event: str) -> None:
        eventually(f"it hears {event}", lambda: list(self.events), lambda events: event in events)

    def lists_again(self, times: int) -> None:
        eventually(f"it lists {times} times", lambda: self.lists, lambda lists: lists >= times)


@contextmanager
def running(client: KubeClient, selection: Selection = ON_NODE_A) -> Iterator[Running]:
    one = Running(client, selection)
    with in_a_thread(one.reflector.run, one.end):
        assert one.reflector.synced.wait(10)
        yield one


def watching(server: EmbeddedApiServer, times: int = 1) -> None:
    eventually(f"{times} watches", lambda: server.watches, lambda watches: watches >= times)


def test_it_lists_what_is_there_and_follows_what_changes(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    server.create(SLICES, slice_of("old"))
    server.create(SLICES, slice_of("elsewhere", node="b"))
    with running(client) as one:
        [item] = one.reflector.snapshot()[0]
        assert (item["metadata"]["name"], item["apiVersion"]) == ("old", "resource.k8s.io/v1")
        assert item["kind"] == "ResourceSlice"
        server.create(SLICES, slice_of("new"))
        one.comes_to("old", "new")
        server.replace(f"{SLICES}/new", slice_of("new", generation=2))
        one.hears("MODIFIED", "new")
        server.delete(f"{SLICES}/old")
        one.comes_to("new")

        assert one.events == [("ADDED", "old"), ("ADDED", "new"), ("MODIFIED", "new"), ("DELETED", "old")]


def test_the_selection_says_how_long_a_page_is(server: EmbeddedApiServer, client: KubeClient) -> None:
    for number in range(5):
        server.create(SLICES, slice_of(f"s{number}"))
    with running(client, Selection(SLICES, {"spec.nodeName": "a"}, {}, page_size=2)) as one:
        one.comes_to("s0", "s1", "s2", "s3", "s4")
        assert server.count("list", "resourceslices") == 3


def test_a_watch_that_ends_in_good_order_is_resumed_without_a_list(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    with running(client) as one:
        watching(server)
        server.end_watches()
        watching(server, 2)
        server.create(SLICES, slice_of("new"))
        one.comes_to("new")

        assert one.lists == 1


def test_what_was_deleted_while_the_history_was_lost_is_noticed(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    server.create(SLICES, slice_of("old"))
    server.create(SLICES, slice_of("kept"))
    with running(client) as one:
        watching(server)
        server.stop()
        server.delete(f"{SLICES}/old")
        server.create(SLICES, slice_of("new"))
        server.compact()
        server.start()

        one.comes_to("kept", "new")
        one.hears("ADDED", "new")
        assert ("DELETED", "old") in one.events
        assert one.lists == 2


def test_an_object_that_came_back_under_its_name_is_another_one(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    server.create(SLICES, slice_of("s"))
    with running(client) as one:
        watching(server)
        server.stop()
        server.delete(f"{SLICES}/s")
        server.create(SLICES, slice_of("s"))
        server.compact()
        server.start()

        one.hears("DELETED", "s")
        one.lists_again(2)
        assert one.events == [("ADDED", "s"), ("DELETED", "s"), ("ADDED", "s")]


def test_a_bookmark_saves_the_list_after_the_history_was_lost(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    with running(client) as one:
        watching(server)
        server.compact()
        server.send_bookmarks()
        server.end_watches()
        watching(server, 2)
        server.create(SLICES, slice_of("new"))
        one.comes_to("new")

        assert one.lists == 1


@pytest.mark.parametrize("hears", ["on_event", "on_list"])
def test_an_error_of_who_hears_of_objects_is_none_of_the_server(
    server: EmbeddedApiServer, client: KubeClient, hears: str
) -> None:
    def hear(*_: object) -> None:
        raise Forbidden("cannot get resourceclaims", "grant this right")

    server.create(SLICES, slice_of("s"))
    reflector = Reflector(client, ON_NODE_A, threading.Event(), **{hears: hear})  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="failed at the API server"):
        reflector.run()


def test_a_field_selector_that_an_older_server_does_not_know_is_applied_here(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    server.verbs.missing_selectors = frozenset({"spec.pool.name"})
    server.create(SLICES, slice_of("mine"))
    server.create(SLICES, slice_of("other", pool="q"))
    with running(client, Selection(SLICES, {"spec.nodeName": "a"}, {"spec.pool.name": "p"})) as one:
        server.create(SLICES, slice_of("other-too", pool="q"))
        server.create(SLICES, slice_of("mine-too"))

        one.comes_to("mine", "mine-too")
        assert one.events == [("ADDED", "mine"), ("ADDED", "mine-too")]


@pytest.mark.parametrize(
    ("faults", "waits", "lists"),
    [
        # Watches that fail at once are repeated ever more slowly, and so is a history that is too old.
        ([{"verb": "watch", "code": 500, "times": 100}], [1, 2, 4, 8, 8, 8], 1),
        ([{"verb": "watch", "code": 410, "times": 100}], [1, 2, 4, 8], 4),
        # A busy server is left alone for as long as it asks.
        (
            [
                {"verb": "list", "code": 429, "retry_after_seconds": 30},
                {"verb": "watch", "code": 429, "retry_after_seconds": 40},
            ],
            *([30 + 1, 40 + 2], 2),
        ),
        # One that has restarted without a history is listed at once.
        (
            [
                {"verb": "watch", "code": 503, "times": 1},
                {"verb": "watch", "code": 410, "times": 1},
                {"verb": "watch", "code": 503, "times": 100},
            ],
            *([1, 2], 2),
        ),
    ],
    ids=["error", "too old", "busy", "restarted"],
)
def test_a_server_that_fails_is_asked_ever_more_slowly(
    server: EmbeddedApiServer,
    client: KubeClient,
    faults: list[Object],
    waits: list[float],
    lists: int,
) -> None:
    for fault in faults:
        server.fail(path="resourceslices", **fault)
    stop = CountingStop(len(waits))
    Reflector(client, ON_NODE_A, stop, backoff=Backoff(1.0, 8.0, jitter=lambda: 0.0)).run()

    assert stop.waits == waits
    assert server.count("list", "resourceslices") == lists


NODES = Selection("/api/v1/nodes", {}, {})
LIST = {"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}


class Pace:
    """A clock that is set by hand, and a server whose watches end as ``ending`` says."""

    def __init__(self, folder: Path, stop: threading.Event, watches: int) -> None:
        self.now = 0.0
        self.failures: list[ApiError] = []
        self._folder = folder
        self._stop = stop
        self._watches = watches

    def run(self, ending: Callable[[Pace, Conversation], None], idle_seconds: float = 120.0) -> list[str]:
        """Follow until the stop is set, or until so many watches began; the requests that came."""

        def answer(asked: Conversation) -> None:
            if "watch=true" not in asked.line:
                asked.send_json(LIST)
                return
            if sum("watch=true" in line for line in server.lines) >= self._watches:
                self._stop.set()
            ending(self, asked)

        with RawServer(answer) as server:
            Reflector(
                client_of(server, self._folder),
                NODES,
                self._stop,
                on_failure=lambda error, _wait_seconds: self.failures.append(error),
                backoff=Backoff(1.0, 8.0, jitter=lambda: 0.0),
                clock=lambda: self.now,
                idle_seconds=idle_seconds,
            ).run()
        return server.lines


def event(kind: str) -> bytes:
    item: Object = {"metadata": {"name": "n", "resourceVersion": "2"}}
    line = json.dumps({"type": kind, "object": item}).encode() + b"\n"
    return b"%x\r\n%s\r\n" % (len(line), line)


def start(asked: Conversation) -> None:
    asked.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")


def ends_after_a_bookmark(_pace: Pace, asked: Conversation) -> None:
    start(asked)
    asked.send(event("BOOKMARK") + b"0\r\n\r\n")


def lives_a_minute(pace: Pace, asked: Conversation) -> None:
    pace.now += 60
    start(asked)
    asked.send(b"0\r\n\r\n")


def stays_silent(pace: Pace, asked: Conversation) -> None:
    pace.now += 120
    start(asked)
    asked.say_nothing()


def test_a_watch_that_lived_for_a_while_is_followed_by_the_next_at_once_and_ends_the_slowness(
    tmp_path: Path,
) -> None:
    stop = CountingStop(5)
    endings = iter([ends_after_a_bookmark] * 3 + [lives_a_minute] * 2 + [ends_after_a_bookmark] * 9)

    def ends(pace: Pace, asked: Conversation) -> None:
        next(endings)(pace, asked)

    Pace(tmp_path, stop, 50).run(ends)

    assert stop.waits == [1, 2, 4, 1, 2]


def test_a_silent_watch_is_begun_again_from_where_it_was_and_nobody_is_told(tmp_path: Path) -> None:
    """Its connection may be half open; where the server sends no bookmarks it was right to be silent."""
    stop = CountingStop(99)
    pace = Pace(tmp_path, stop, 3)

    lines = pace.run(stays_silent, idle_seconds=0.05)

    assert ["watch=true" in line for line in lines] == [False, True, True, True]
    assert stop.waits == []
    assert pace.failures == []
