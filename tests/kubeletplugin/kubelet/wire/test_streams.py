"""A published value reaches each stream at once, at changes and at intervals, and streams end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from kubeletplugin.kubelet.wire.streams import Published, TooManyStreams
from tests.kubeletplugin.fake_kubelet import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable


class Client:
    """The client of one stream, that can go away."""

    def __init__(self) -> None:
        self._active = True
        self._callbacks: list[Callable[[], None]] = []

    def is_active(self) -> bool:
        return self._active

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self._callbacks.append(callback)
        return self._active

    def leave(self) -> None:
        self._active = False
        for callback in self._callbacks:
            callback()


def test_the_value_comes_at_once_and_at_each_change() -> None:
    published = Published("a")
    stream = published.follow(Client())
    assert next(stream) == "a"
    published.publish("b")
    assert next(stream) == "b"


def test_a_slow_follower_sees_the_last_of_many_changes() -> None:
    published = Published(0)
    stream = published.follow(Client())
    assert next(stream) == 0
    for number in range(1, 10):
        published.publish(number)
    assert next(stream) == 9


def test_an_equal_value_is_no_change() -> None:
    published = Published((1, 2))
    assert not published.publish((1, 2))
    assert published.publish((1, 3))


def test_an_unchanged_value_is_sent_again_after_the_interval() -> None:
    stream = Published("a").follow(Client(), resend_seconds=0.001)
    assert [next(stream) for _ in range(3)] == ["a", "a", "a"]


def test_a_client_that_leaves_ends_its_stream_at_once_and_frees_its_place() -> None:
    published = Published("a", max_streams=1)
    client, ended, first = Client(), threading.Event(), threading.Event()

    def follow() -> None:
        for _ in published.follow(client):
            first.set()
        ended.set()

    follower = threading.Thread(target=follow)
    follower.start()
    assert first.wait(WAIT_SECONDS)
    with pytest.raises(TooManyStreams):
        next(published.follow(Client()))
    client.leave()
    assert ended.wait(WAIT_SECONDS)
    follower.join()
    assert next(published.follow(Client())) == "a"


def test_closing_sends_the_last_value_and_ends_the_stream() -> None:
    published = Published("a")
    stream = published.follow(Client())
    assert next(stream) == "a"
    published.publish("b")
    published.close()
    assert list(stream) == ["b"]
    assert not published.publish("c")
    assert published.value == "b"


def test_closing_ends_a_stream_that_waits() -> None:
    published = Published("a")
    stream = published.follow(Client())
    assert next(stream) == "a"
    closer = threading.Thread(target=published.close)
    closer.start()
    assert list(stream) == []
    closer.join()
