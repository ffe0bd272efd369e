"""The answers of the control daemon are told apart, and the supervisor answers probes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletplugin.sharing.mps.processes import Answers, is_amount, limit_commands, limits_fault, sort_answers
from kubeletplugin.sharing.mps.supervisor import probes_of
from tests.clock import Clock
from tests.clusters import Pulse
from tests.kubeletplugin.sharing.mps.scene import DEADLINE_SECONDS, NAME, MpsScene, running, served, told
from tests.kubeletplugin.stream_client import StreamClient
from tests.plugin import MpsDaemon

DAEMON = MpsDaemon("gpu", ("GPU-1", "GPU-2"), active_thread_percentage=25, pinned_memory_mib=(0, 5632))


def test_limits_are_set_by_ordinal_and_only_where_there_are_any() -> None:
    assert limit_commands(DAEMON) == [
        "set_default_active_thread_percentage 25",
        "set_default_device_pinned_mem_limit 1 5632M",
        "get_default_active_thread_percentage",
        "get_default_device_pinned_mem_limit 1",
    ]
    assert limit_commands(DAEMON, server=17) == [
        "set_active_thread_percentage 17 25",
        "set_device_pinned_mem_limit 17 1 5632M",
        "get_active_thread_percentage 17",
        "get_device_pinned_mem_limit 17 1",
    ]


def test_answers_are_told_apart_by_their_shape() -> None:
    answers = sort_answers(("25.0", "25.0", "5G", "512M", "12345", "Unknown command: x"))
    assert answers == Answers(("25.0", "25.0"), ("5G", "512M"), (12345,), ("Unknown command: x",))


@given(st.integers(1, 2**31))
def test_an_amount_is_known_again_as_the_daemon_rounds_it(mib: int) -> None:
    assert is_amount(mib, f"{mib // 1024}G" if mib >= 1024 else f"{mib}M")
    assert is_amount(mib, f"{mib}M")
    assert not is_amount(mib, f"{mib // 1024 + 1}G")
    assert not is_amount(mib, f"{mib + 1}M")
    assert not is_amount(mib, str(mib))


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (("25.0", "5G"), None),
        (("25.0", "25.0", "5G"), None),  # the setter answered as well
        (("25.0", "6G"), "has a pinned memory limit of 6G where 5632M was set"),
        (("100.0", "5G"), "has an active thread percentage of 100.0 where 25 was set"),
        (("25.0",), "did not report its limits, but ['25.0']"),
        ((), "did not report its limits, but []"),
        (("Invalid device 1", "25.0", "0M"), "refused its limits: Invalid device 1"),
    ],
)
def test_what_is_wrong_with_limits_is_said(lines: tuple[str, ...], fault: str | None) -> None:
    assert limits_fault(DAEMON, sort_answers(lines)) == fault


def test_a_daemon_that_does_not_run_is_named_and_ends_nothing(mps: MpsScene) -> None:
    supervisor = mps.supervisor()
    with served(mps, supervisor) as server:
        probes = probes_of(supervisor, server.path, Pulse())
        supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
        mps.machine.spoil_mps("refuse", "start", "the GPU is gone")
        mps.kill()
        told(supervisor.follow(StreamClient()), lambda states: "the GPU is gone" in states[0].message)

        assert f"the MPS daemon {NAME} does not run: " in probes.ready()
        assert "the GPU is gone" in probes.ready()
        assert [probes.started(), probes.alive()] == [""] * 2

        mps.machine.heal_mps()
        told(supervisor.follow(StreamClient()), running)
        assert probes.ready() == ""


def test_a_supervisor_that_hangs_is_alive_and_not_ready(mps: MpsScene) -> None:
    supervisor, clock = mps.supervisor(), Clock()
    with served(mps, supervisor) as server:
        pulse = Pulse(5.0, clock)
        probes = probes_of(supervisor, server.path, pulse)
        with pulse.work("mps-restart"):
            clock.now = 6.0
            assert probes.ready() == "mps-restart has been running for 6 s"
            assert probes.alive() == ""
        assert probes.ready() == ""
