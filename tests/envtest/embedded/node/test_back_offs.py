"""A container that ends again and again is left for longer each time."""

from __future__ import annotations

import time

from envtest.embedded.node.back_offs import ContainerBackOffs


def test_the_first_restart_is_at_once_and_the_others_wait_twice_as_long_each() -> None:
    back_offs = ContainerBackOffs(10.0, 300.0)
    ended = time.monotonic()
    assert back_offs.rest("pod", "main", ended) == 0.0

    for seconds in (10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0):
        back_offs.restarted("pod", "main", ended)
        assert back_offs.seconds("pod", "main") == seconds
        assert 0.0 < back_offs.rest("pod", "main", ended) <= seconds
    assert back_offs.rest("pod", "other", ended) == 0.0


def test_a_container_that_ran_long_enough_begins_anew() -> None:
    back_offs = ContainerBackOffs(10.0, 300.0)
    back_offs.restarted("pod", "main", time.monotonic())

    later = time.monotonic() + 601

    assert back_offs.rest("pod", "main", later) == 0.0
    back_offs.restarted("pod", "main", later)
    assert back_offs.seconds("pod", "main") == 10.0
