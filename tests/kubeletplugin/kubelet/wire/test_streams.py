"""A published value reaches each stream at once, at changes and at intervals, and streams end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from kubeletplugin.kubelet.wire.streams import Published, TooManyStreams
from tests.kubeletplugin.fake_kubelet import WAIT_SECONDS
from tests.kubeletplugin.stream_client import StreamClient

if TYPE_CHECKING:
    pass


def test_the_value_comes_at_once_and_at_each_change() -> None:
    published = Published("a")
    stream = published.follow(StreamClient())
    assert next(stream) == "a"
    published.publish("b")
    assert next(stream) == "b"


def test_a_slow_follower_sees_the_last_of_many_changes() -> None:
    published = Published(0)
    stream = published.follow(StreamClient())
    assert next(stream) == 0
    for number in range(1, 10):
        published.publish(number)
    assert next(stream) == 9


def test_an_unchanged_value_is_sent_again_after_the_interval() -> None:
    stream = Published("a").follow(StreamClient(), resend_seconds=0.001)
    assert [next(stream) for _ in range(3)] == ["a", "a", "a"]


def test_a_client_that_leaves_ends_its_stream_at_once_and_frees_its_place() -> None:
    published = Published("a", max_streams=1)
    client, ended, first = StreamClient(), threading.Event(), threading.Event()

    def follow() -> None:
        for _ in published.follow(client):
            first.set()
        ended.set()

    follower = threading.Thread(target=follow)
    follower.start()
    assert first.wait(WAIT_SECONDS)
    with pytest.raises(TooManyStreams):
        next(published.follow(StreamClient()))
    client.leave()
    assert ended.wait(WAIT_SECONDS)
    follower.join()
    assert next(published.follow(StreamClient())) == "a"


def test_closing_sends_the_last_value_and_ends_the_stream() -> None:
    published = Published("a")
    stream = published.follow(StreamClient())
    assert next(stream) == "a"
    published.publish("b")
    published.close()
    assert list(stream) == ["b"]
    assert not published.publish("c")
    assert published.value == "b"


def test_closing_ends_a_stream_that_waits() -> None:
    published = Published("a")
    stream = published.follow(StreamClient())
    assert next(stream) == "a"
    closer = threading.Thread(target=published.close)
    closer.start()
    assert list(stream) == []
    closer.join()
