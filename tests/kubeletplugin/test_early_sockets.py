"""A call that comes before the plugin is ready waits for it, and is let go when it never will be."""

from __future__ import annotations

import threading

import pytest

from driver.errors import ClaimBlocked
from kubeletplugin.early_sockets import LateClaims
from kubeletplugin.kubelet.wire.claim_call import Call, ClaimRef
from tests.kubeletplugin.fake_kubelet import FakeClaims

CLAIM = ClaimRef("team", "train", "u-1")


def call(remaining_seconds: float = 45.0) -> Call:
    return Call(0, lambda: True, lambda: remaining_seconds)


def test_a_call_that_came_early_is_done_when_the_plugin_is_ready() -> None:
    late, claims = LateClaims(), FakeClaims()
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(late.prepare(CLAIM, call(float("inf")))))
    thread.start()

    late.ready(claims)
    thread.join(10)

    assert answers == [claims.prepare(CLAIM, call())]
    late.unprepare(CLAIM, call())


def test_a_call_that_waited_too_long_is_told_so() -> None:
    with pytest.raises(ClaimBlocked, match="team/train came before the plugin was ready"):
        LateClaims().unprepare(CLAIM, call(1.0))


def test_calls_that_wait_are_let_go_when_the_plugin_stops() -> None:
    late = LateClaims()
    late.close()

    with pytest.raises(ClaimBlocked):
        late.prepare(CLAIM, call())
