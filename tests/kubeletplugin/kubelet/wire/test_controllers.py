"""Controllers are asked to let go of NVML, and the answers are waited for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kubeletplugin.kubelet.wire.controllers import Controllers, NotLetGo


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


def test_without_any_controller_there_is_nobody_to_wait_for() -> None:
    with Scene().controllers.letting_go(0.0):
        pass


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
