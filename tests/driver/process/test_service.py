"""Threads start together, end in reverse order, and the first that fails ends the process."""

import os
import signal
import threading
from functools import partial
from typing import Any

import pytest

from driver.process.service import delay_seconds
from tests.clusters import Service
from tests.eventually import WAIT_SECONDS, eventually
from tests.gpus import ClaimBlocked


def test_a_signal_ends_the_service_in_reverse_order() -> None:
    service = Service()
    ended: list[str] = []

    def loop(name: str) -> None:
        service.stop_event.wait(WAIT_SECONDS)
        ended.append(f"{name} saw the stop")

    service.on_stop("first", lambda: ended.append("first"))
    service.spawn("loop", lambda: loop("loop"))
    service.on_stop("last", lambda: ended.append("last"))
    before = signal.getsignal(signal.SIGTERM)

    def kill_when_listening() -> None:
        handler = partial(signal.getsignal, signal.SIGTERM)
        eventually("it listens to signals", handler, lambda found: found is not before)
        os.kill(os.getpid(), signal.SIGTERM)

    service.spawn("killer", kill_when_listening)
    service.run()
    assert signal.getsignal(signal.SIGTERM) is before
    assert service.stop_event.is_set()
    assert ended.index("last") < ended.index("first")
    assert "loop saw the stop" in ended


@pytest.mark.parametrize("early", [True, False], ids=["before it runs", "to another thread"])
def test_a_signal_that_comes_early_or_to_another_thread_ends_the_service(early: bool) -> None:
    service, stopped = Service(), threading.Event()
    service.on_stop("part", stopped.set)
    service.catch_signals()
    if early:
        os.kill(os.getpid(), signal.SIGTERM)
        assert not stopped.is_set()
    else:
        service.spawn("taker", lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM))

    service.run()

    assert stopped.is_set()


def test_a_signal_that_comes_while_the_service_begins_to_catch_them_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the handlers and the socket it was nobody's, and the process never ended."""
    plain = signal.signal
    came: list[int] = []

    def install(number: int, handler: Any) -> Any:
        before = plain(number, handler)
        if number == signal.SIGTERM and not came:
            came.append(number)
            os.kill(os.getpid(), signal.SIGTERM)
        return before

    monkeypatch.setattr(signal, "signal", install)
    service = Service()

    def end_a_service_that_waits() -> None:
        assert service.stop_event.wait(WAIT_SECONDS)

    service.spawn("impatient", end_a_service_that_waits)
    service.run()
    assert came


def test_the_first_failing_thread_ends_the_others_and_is_raised() -> None:
    service = Service()
    ended = threading.Event()

    def loop() -> None:
        service.stop_event.wait(WAIT_SECONDS)
        ended.set()

    service.spawn("loop", loop)

    def fail() -> None:
        raise ValueError("broken")

    service.spawn("failing", fail)
    with pytest.raises(ValueError, match="broken"):
        service.run()
    assert ended.is_set()


def test_a_part_that_fails_to_stop_does_not_keep_the_others() -> None:
    service = Service()
    ended: list[str] = []
    service.on_stop("first", lambda: ended.append("first"))
    service.on_stop("broken", lambda: 1 // 0)
    service.stop()
    assert ended == ["first"]


def test_a_loop_survives_driver_errors_and_goes_on() -> None:
    service = Service()
    calls: list[int] = []
    enough = threading.Event()

    def sometimes() -> None:
        calls.append(len(calls))
        if len(calls) == 4:
            enough.set()
        if len(calls) % 2:
            raise ClaimBlocked("not now")

    service.repeat("loop", 0.001, sometimes)
    assert enough.wait(WAIT_SECONDS)
    service.stop()


def test_an_unexpected_error_in_a_loop_ends_the_service() -> None:
    service = Service()

    def fail() -> None:
        raise KeyError("a fault of ours")

    service.repeat("loop", 0.001, fail)
    with pytest.raises(KeyError):
        service.run()


@pytest.mark.parametrize(
    ("every_seconds", "failures", "delay"),
    [
        (300, 0, 300),
        (300, 1, 1),
        (300, 3, 4),
        (300, 20, 300),
        (0.5, 1, 0.5),
        (0.5, 2, 1),
        (5, 100, 60),
        (5, 10_000, 60),
    ],
)
def test_failures_are_retried_soon_at_first_and_ever_more_rarely(
    every_seconds: float, failures: int, delay: float
) -> None:
    assert delay_seconds(every_seconds, failures) == delay


class Waits(threading.Event):
    """Ends each wait at once, the tenth of them the service; ``seconds`` are those that were asked for."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._service = service

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        if len(self.seconds) == 10:
            self._service.stop_event.set()
        return True


def test_loops_that_fail_on_many_nodes_at_once_do_not_come_back_at_once() -> None:
    def fail() -> None:
        raise ClaimBlocked("not now")

    found = []
    for _ in range(2):
        service = Service()
        waits = Waits(service)
        service.repeat("loop", 300, fail, waits)
        assert service.stop_event.wait(WAIT_SECONDS)
        service.stop()
        found.append(waits.seconds)

    longest = [delay_seconds(300, failures) for failures in range(1, 11)]
    for seconds in found:
        assert all(most / 2 <= one <= most for one, most in zip(seconds, longest, strict=True))
    assert found[0] != found[1]


def test_a_pool_does_work_until_the_service_ends() -> None:
    service = Service()
    pool = service.pool("claims", 2)
    assert pool.submit(lambda: threading.current_thread().name).result().startswith("claims")
    service.stop()
    with pytest.raises(RuntimeError):
        pool.submit(int)
