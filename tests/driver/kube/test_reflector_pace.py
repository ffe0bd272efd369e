"""How soon the next watch begins follows from how long the last one lived, whatever it said."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from driver.errors import ApiError
from driver.kube.backoff import Backoff
from driver.kube.reflector import Reflector, Selection
from tests.driver.kube.raw_server import Conversation, RawServer, client_of
from tests.driver.kube.stops import CountingStop

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
    item: dict[str, Any] = {"metadata": {"name": "n", "resourceVersion": "2"}}
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


def test_a_watch_that_lived_for_a_while_is_followed_by_the_next_at_once(tmp_path: Path) -> None:
    stop = CountingStop(99)

    lines = Pace(tmp_path, stop, 5).run(lives_a_minute)

    assert stop.waits == []
    assert sum("watch=true" in line for line in lines) == 5


def test_a_watch_that_lived_for_a_while_ends_the_slowness(tmp_path: Path) -> None:
    stop = CountingStop(4)
    endings = iter([ends_after_a_bookmark] * 3 + [lives_a_minute] + [ends_after_a_bookmark] * 9)

    def ends(pace: Pace, asked: Conversation) -> None:
        next(endings)(pace, asked)

    Pace(tmp_path, stop, 50).run(ends)

    assert stop.waits == [1, 2, 4, 1]


def test_a_silent_watch_is_begun_again_from_where_it_was_and_nobody_is_told(tmp_path: Path) -> None:
    """Its connection may be half open; where the server sends no bookmarks it was right to be silent."""
    stop = CountingStop(99)
    pace = Pace(tmp_path, stop, 3)

    lines = pace.run(stays_silent, idle_seconds=0.05)

    assert ["watch=true" in line for line in lines] == [False, True, True, True]
    assert stop.waits == []
    assert pace.failures == []
