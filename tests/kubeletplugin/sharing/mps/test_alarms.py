"""Alarms call when a process has died or a time has come, and sleep until then."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from driver.process.service import Service
from kubeletplugin.sharing.mps.alarms import Alarms

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_SECONDS = 30.0


@pytest.fixture
def alarms() -> Iterator[Alarms]:
    alarms, service = Alarms(), Service()
    service.spawn("alarms", alarms.run, alarms.close)
    yield alarms
    service.stop()


def test_the_end_of_a_process_is_told_even_when_its_descriptor_was_closed(alarms: Alarms) -> None:
    calls: queue.SimpleQueue[str] = queue.SimpleQueue()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        pidfd = os.pidfd_open(process.pid)
        alarms.when_dead(pidfd, lambda: calls.put("dead"))
        os.close(pidfd)
        assert calls.empty()
        process.kill()
        assert calls.get(timeout=DEADLINE_SECONDS) == "dead"


def test_times_come_in_their_order_whatever_the_order_of_asking(alarms: Alarms) -> None:
    calls: queue.SimpleQueue[str] = queue.SimpleQueue()
    alarms.after(0.1, lambda: calls.put("later"))
    alarms.after(0.01, lambda: calls.put("sooner"))
    assert [calls.get(timeout=DEADLINE_SECONDS) for _ in range(2)] == ["sooner", "later"]


def test_a_call_may_ask_for_another(alarms: Alarms) -> None:
    calls: queue.SimpleQueue[str] = queue.SimpleQueue()
    alarms.after(0, lambda: alarms.after(0, lambda: calls.put("second")))
    assert calls.get(timeout=DEADLINE_SECONDS) == "second"


def test_a_call_that_hangs_is_work_that_hangs_and_waiting_is_not() -> None:
    service = Service(hung_seconds=0.05)
    alarms = Alarms(lambda: service.pulse.work("alarms"))
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        go_on.wait(DEADLINE_SECONDS)

    service.spawn("alarms", alarms.run, alarms.close)
    try:
        alarms.after(0, hang)
        assert begun.wait(DEADLINE_SECONDS)
        go_on.wait(0.1)
        assert service.pulse.hung().startswith("alarms has been running")
        go_on.set()
        alarms.after(0, ended.set)
        assert ended.wait(DEADLINE_SECONDS)
    finally:
        go_on.set()
        service.stop()
    assert service.pulse.hung() == ""
