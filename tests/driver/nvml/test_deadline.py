"""The guard: a hung call costs its caller one deadline, others nothing, and nobody a second thread."""

import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from driver.nvml.deadline import LONG_CALLS, LONG_FACTOR
from tests.eventually import eventually
from tests.gpus import MIG_CHANGES, Code, GpuLost, Guard, NvmlTimeout, Watch

SHORT = 0.5


class Hang:
    """A call that hangs until it is let go, and says when it has begun and ended."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.released = threading.Event()
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        self.begun.set()
        assert self.released.wait(30)
        return "late"


@pytest.fixture
def guard() -> Guard:
    return Guard(SHORT)


def test_a_call_that_hangs_is_named_and_its_lane_refuses_at_once_until_it_comes_back(guard: Guard) -> None:
    hang = Hang()
    pending = guard.start("0000:07:00.0", lambda watch: watch("mig_mode", hang))
    assert hang.begun.wait(5)
    assert guard.run("another", lambda _: 1) == 1, "other lanes do not notice it"
    with pytest.raises(NvmlTimeout) as caught:
        pending.result()
    assert caught.value.call == "nvmlDeviceGetMigMode"
    assert "nvmlDeviceGetMigMode of 0000:07:00.0 did not return within 0.5 s" in str(caught.value)
    assert caught.value.retryable

    for _ in range(50):
        with pytest.raises(NvmlTimeout):
            guard.start("0000:07:00.0", lambda watch: watch("mig_mode", hang))
    assert (hang.calls, guard.hung()) == (1, ("0000:07:00.0",)), "no second thread hangs"

    hang.released.set()
    _healed(guard)
    assert guard.run("0000:07:00.0", lambda _: "well") == "well"


def _healed(guard: Guard) -> None:
    """Wait until no lane is overdue any more."""
    eventually("no lane is overdue", guard.hung, lambda hung: not hung)


def test_an_abandoned_job_makes_no_further_calls(guard: Guard) -> None:
    hang, made = Hang(), []

    def job(watch: Watch) -> None:
        watch("uuid", hang)
        watch("minor", lambda: made.append("minor"))

    with pytest.raises(NvmlTimeout):
        guard.run("gpu", job)
    hang.released.set()
    _healed(guard)
    guard.run("gpu", lambda _: None)
    assert made == []


def test_a_job_that_waits_behind_a_hung_one_fails_with_it_and_is_never_done(guard: Guard) -> None:
    hang, done = Hang(), []
    first = guard.start("gpu", lambda watch: watch("uuid", hang))
    assert hang.begun.wait(5)
    second = guard.start("gpu", lambda _: done.append("second"))
    for pending in (first, second):
        with pytest.raises(NvmlTimeout):
            pending.result()
    hang.released.set()
    _healed(guard)
    guard.run("gpu", lambda _: None)
    assert done == []


def test_the_deadline_is_for_each_call_not_for_the_job() -> None:
    guard = Guard(1.5)
    tick = threading.Event()

    def job(watch: Watch) -> int:
        for _ in range(5):
            watch("uuid", lambda: tick.wait(0.4))
        return 5

    assert guard.run("gpu", job) == 5


def test_a_hung_call_does_not_keep_the_process_alive() -> None:
    program = (
        "import threading\n"
        "from driver.nvml.deadline import Guard\n"
        "from driver.nvml.api import NvmlTimeout\n"
        "try:\n"
        "    Guard(0.05).run('gpu', lambda watch: watch('uuid', threading.Event().wait))\n"
        "except NvmlTimeout:\n"
        "    print('timed out')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30, check=True)
    assert ended.stdout == b"timed out\n"


def test_a_call_that_cuts_the_gpu_is_given_more_time(guard: Guard) -> None:
    """On a healthy GPU it takes seconds; a call of another lane that is late by then tells the time."""
    cutting, clock = Hang(), Hang()
    pending = guard.start("gpu", lambda watch: watch("create_gpu_instance", cutting))
    with pytest.raises(NvmlTimeout):
        guard.run("another gpu", lambda watch: watch("minor", clock))
    assert guard.hung() == ("another gpu",)
    cutting.released.set()
    assert pending.result() == "late"
    clock.released.set()


@pytest.mark.parametrize(("call", "patient"), [("set_mig_mode", False), ("device_by_index", True)])
def test_a_call_that_is_given_more_time_has_a_deadline_too(call: str, *, patient: bool) -> None:
    guard, hang = Guard(SHORT / LONG_FACTOR), Hang()
    with pytest.raises(NvmlTimeout, match=f"did not return within {SHORT:g} s"):
        guard.run("gpu", lambda watch: watch(call, hang, patient=patient))
    hang.released.set()


def test_the_calls_that_are_given_more_time_are_those_that_change_mig_or_initialise_a_gpu() -> None:
    assert {*MIG_CHANGES, "set_persistence_mode"} == LONG_CALLS


def test_a_change_of_mig_mode_is_told_when_it_begins_and_when_it_ends_or_hangs() -> None:
    told: list[tuple[str, bool]] = []
    guard, hang = Guard(SHORT / LONG_FACTOR), Hang()
    guard.on_mode_change = lambda key, begins: told.append((key, begins))

    guard.run("gpu", lambda watch: watch("set_mig_mode", lambda: "done"))
    guard.run("gpu", lambda watch: watch("uuid", lambda: "GPU-1"))
    assert told == [("gpu", True), ("gpu", False)]
    with pytest.raises(NvmlTimeout):
        guard.run("gpu", lambda watch: watch("set_mig_mode", hang))

    assert told == [("gpu", True), ("gpu", False)] * 2
    hang.released.set()
    guard.close()


def test_a_lane_that_is_forgotten_does_its_jobs_and_ends(guard: Guard) -> None:
    release = threading.Event()
    first = guard.start("gone", lambda _: release.wait(30))
    second = guard.start("gone", lambda _: "done")
    thread = next(one for one in threading.enumerate() if one.name == "nvml gone")
    guard.forget("gone")
    guard.forget("gone")
    release.set()

    assert (first.result(), second.result()) == (True, "done")
    thread.join(30)
    assert not thread.is_alive()
    assert guard.run("gone", lambda _: "there again") == "there again"


def test_jobs_of_several_lanes_are_done_side_by_side_and_one_that_hangs_takes_no_answer_away() -> None:
    guard, gate = Guard(SHORT), threading.Event()
    try:
        jobs: dict[str, Callable[[Watch], int]] = {
            "hangs": lambda watch: watch("uuid", lambda: int(gate.wait())),
            "fails": lambda watch: watch("uuid", _lost),
            "well": lambda watch: watch("minor", lambda: 7),
        }
        for _ in range(2):  # the second time the lane that hangs refuses at once
            found = guard.side_by_side(jobs)
            assert found["well"] == 7
            assert isinstance(found["hangs"], NvmlTimeout)
            assert isinstance(found["fails"], GpuLost)
    finally:
        gate.set()
        guard.close()


def test_who_counts_hears_of_each_call_that_came_back_also_of_one_that_failed() -> None:
    guard = Guard()
    heard: list[str] = []
    guard.on_call = lambda call, _seconds: heard.append(call)
    try:
        guard.run("gpu", lambda watch: watch("minor", lambda: 7))
        with pytest.raises(GpuLost):
            guard.run("gpu", lambda watch: watch("uuid", _lost))
    finally:
        guard.close()

    assert heard == ["minor", "uuid"]


def _lost() -> int:
    raise GpuLost("nvmlDeviceGetUUID", Code.GPU_IS_LOST, "0000:8a:00.0")


def test_a_closed_guard_has_no_threads_and_refuses_work(guard: Guard) -> None:
    thread = guard.run("gpu", lambda _: threading.current_thread())
    guard.close()
    assert not thread.is_alive()
    with pytest.raises(RuntimeError, match="closed"):
        guard.run("gpu", lambda _: None)
