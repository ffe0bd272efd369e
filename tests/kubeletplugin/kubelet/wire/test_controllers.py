"""Controllers are asked to let go, published values reach each stream, and daemons are checked."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletplugin.kubelet.wire.mps_daemon import checked_daemon, read_spec, write_spec
from kubeletplugin.kubelet.wire.streams import Published, TooManyStreams
from tests.eventually import WAIT_SECONDS
from tests.gpus import ClaimRefused
from tests.kubeletplugin.stream_client import StreamClient
from tests.plugin import Controllers, MpsDaemon, NotLetGo


class Scene:
    """Controllers that listen, and what they were asked last."""

    def __init__(self, *names: str) -> None:
        self.asked: list[int] = []
        self.controllers = Controllers(self._ask)
        for name in names:
            self.controllers.joined(name)
        self.willing = names

    def _ask(self, number: int) -> None:
        self.asked.append(number)
        for name in self.willing if number else ():
            self.controllers.answered(name, number, "")


def test_the_block_begins_when_all_have_answered_and_its_end_is_told() -> None:
    scene = Scene("a", "b")
    with scene.controllers.letting_go(0.0):
        assert scene.asked == [1]
    assert scene.asked == [1, 0]
    with scene.controllers.letting_go(0.0):
        assert scene.asked == [1, 0, 2]


def test_one_that_does_not_answer_is_not_believed_to_have_let_go() -> None:
    scene = Scene("a", "b")
    scene.willing = ("a",)
    with pytest.raises(NotLetGo, match="did not release"), scene.controllers.letting_go(0.01):
        raise AssertionError
    assert scene.asked[-1] == 0
    assert NotLetGo("", "").retryable


def test_one_that_ends_meanwhile_is_not_waited_for() -> None:
    scene = Scene("a")
    scene.willing = ()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(scene.controllers.left, "a")
        with scene.controllers.letting_go(10.0):
            pass


def test_one_that_says_why_it_cannot_is_not_waited_for_any_longer() -> None:
    scene = Scene("a")
    scene.willing = ()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(scene.controllers.answered, "a", 1, "a call of NVML hangs")
        with pytest.raises(NotLetGo, match="a call of NVML hangs"), scene.controllers.letting_go(10.0):
            raise AssertionError


def test_what_one_answered_before_its_stream_broke_counts_no_longer() -> None:
    scene = Scene("a")
    with scene.controllers.letting_go(0.0):
        scene.controllers.left("a")
        scene.controllers.joined("a")
        scene.willing = ()
        with pytest.raises(NotLetGo), scene.controllers.letting_go(0.01):
            raise AssertionError


def test_two_blocks_at_once_are_both_heard_and_nobody_comes_back_before_the_last_ends() -> None:
    scene = Scene("a")
    with scene.controllers.letting_go(0.0):
        with scene.controllers.letting_go(0.0):
            pass
        assert scene.asked == [1, 2, 1]
    assert scene.asked == [1, 2, 1, 0]


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


DAEMON = MpsDaemon("gpu-0000-8a-00-0", ("GPU-1a", "GPU-2b"), pinned_memory_mib=(0, 512))


@given(
    st.integers(1, 100), st.booleans(), st.lists(st.integers(0, 2**31), max_size=2).map(tuple),
)  # fmt: skip
def test_a_daemon_is_read_as_it_was_written(
    percentage: int, multi_user: bool, pinned: tuple[int, ...]
) -> None:
    daemon = replace(
        DAEMON, active_thread_percentage=percentage, multi_user=multi_user, pinned_memory_mib=pinned
    )
    assert read_spec(write_spec(daemon)) == daemon


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Upper"},
        {"devices": ()},
        {"devices": ("GPU-1", "GPU-1")},
        {"devices": ("0",)},
        {"devices": ("GPU-1\nX=1",)},
        {"devices": ("MIG-1", "MIG-2")},
        {"active_thread_percentage": 0},
        {"pinned_memory_mib": (1, 2, 3)},
        {"pinned_memory_mib": (2**40,)},
    ],
)
def test_what_cannot_be_run_is_refused_for_good(change: dict[str, Any]) -> None:
    with pytest.raises(ClaimRefused):
        checked_daemon(replace(DAEMON, **change))


@pytest.mark.parametrize("device", ["GPU-1", "MIG-GPU-8a3c/1/0", "MIG-8a3c"])
def test_gpus_and_mig_devices_of_old_and_new_drivers_can_be_served(device: str) -> None:
    daemon = MpsDaemon("gpu", (device,))
    assert checked_daemon(daemon) == daemon


@pytest.mark.parametrize("data", [b"{", b"[]", b"{}", b'{"name": 1}', b"\xff"])
def test_a_file_that_is_no_daemon_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_spec(data)
