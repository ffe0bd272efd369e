"""A daemon that cannot start, hangs, dies, lies or refuses is told of in its own words, and mended."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from driver.errors import ClaimBlocked, NodeIncomplete
from kubeletplugin.kubelet.wire.mps_daemon import MpsState
from kubeletplugin.sharing.mps.processes import CONTROL
from tests.kubeletplugin.sharing.mps.scene import (
    DEADLINE_SECONDS,
    NAME,
    MpsScene,
    mps_process,
    running,
    told,
)
from tests.kubeletplugin.stream_client import StreamClient

if TYPE_CHECKING:
    from kubeletplugin.sharing.mps.supervisor import Supervisor

PERCENTAGE, PINNED = "set_default_active_thread_percentage", "set_default_device_pinned_mem_limit"


def nothing_is_left(mps: MpsScene, supervisor: Supervisor) -> bool:
    return mps.pid() is None and supervisor.states().daemons == () and not mps.folder().path.exists()


def test_a_missing_program_is_named_and_may_come(mps: MpsScene) -> None:
    program = mps.root / "usr/bin" / CONTROL
    program.rename(program.with_suffix(".away"))
    supervisor = mps.supervisor()
    with pytest.raises(NodeIncomplete, match=f"{CONTROL} is missing below {mps.root}"):
        supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    assert nothing_is_left(mps, supervisor)
    program.with_suffix(".away").rename(program)
    supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)


def test_a_program_that_is_none_is_named(mps: MpsScene) -> None:
    (mps.root / "usr/bin" / CONTROL).chmod(0o644)
    supervisor = mps.supervisor()
    with pytest.raises(NodeIncomplete, match=rf"cannot run .*{CONTROL}: Permission denied"):
        supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    assert nothing_is_left(mps, supervisor)


def test_what_clients_wrote_into_a_log_is_quoted_without_what_harms_a_terminal(mps: MpsScene) -> None:
    supervisor = mps.supervisor()
    supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    folder = mps.folder()
    with (folder.logs / "control.log").open("a") as log:
        log.write(f"\x1b[2J{'x' * 4000}\n\x1b]8;;http://evil\x07the end\n")

    words = folder.last_words()

    assert words.isprintable()
    assert words.endswith("the end")
    assert len(words) < 1000


def test_a_start_that_hangs_is_given_up_and_ended(mps: MpsScene) -> None:
    mps.machine.spoil_mps("hang", "start")
    supervisor = mps.supervisor(mps.site(start_seconds=1))
    with pytest.raises(ClaimBlocked, match="did not answer within 1 s"):
        supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    assert nothing_is_left(mps, supervisor)


def test_a_daemon_that_dies_while_it_is_limited_shows_its_log(mps: MpsScene) -> None:
    mps.machine.spoil_mps("die", PERCENTAGE, times=1)
    supervisor = mps.supervisor()
    with pytest.raises(ClaimBlocked, match=rf"ended at once, and said: .*Cmd:{PERCENTAGE} 25"):
        supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    assert nothing_is_left(mps, supervisor)


def test_a_daemon_that_hangs_while_it_is_limited_is_ended(mps: MpsScene) -> None:
    mps.machine.spoil_mps("hang", PINNED)
    supervisor = mps.supervisor(mps.site(command_seconds=1))
    with pytest.raises(ClaimBlocked, match=f"{NAME} does not answer: {CONTROL} did not end within"):
        supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    assert nothing_is_left(mps, supervisor)


def test_a_limit_that_is_refused_says_how(mps: MpsScene) -> None:
    mps.machine.spoil_mps("refuse", PINNED, "not on this GPU", times=1)
    supervisor = mps.supervisor()
    with pytest.raises(ClaimBlocked, match="refused its limits: not on this GPU"):
        supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    assert nothing_is_left(mps, supervisor)


def test_a_running_server_that_lies_about_its_limits_is_found(mps: MpsScene) -> None:
    supervisor = mps.supervisor()
    supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    with mps.client() as client:
        mps.machine.spoil_mps("lie", "set_active_thread_percentage", "90")
        with pytest.raises(ClaimBlocked, match=rf"90.0 where 50 was set \(server {client.limits.server}\)"):
            supervisor.ensure(mps.daemon(percentage=50), DEADLINE_SECONDS)


def test_new_limits_that_are_refused_end_no_client_and_are_tried_again(mps: MpsScene) -> None:
    supervisor = mps.supervisor()
    supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    pid, states = mps.pid(), supervisor.follow(StreamClient(), 0.05)
    with mps.client():
        mps.machine.spoil_mps("refuse", PERCENTAGE, "busy")
        with pytest.raises(ClaimBlocked, match="busy"):
            supervisor.ensure(mps.daemon(percentage=50), DEADLINE_SECONDS)
        [state] = told(states, lambda states: not running(states))
        assert "refused its limits: busy" in state.message
        mps.machine.heal_mps()
        told(states, running)
        assert (mps.pid(), mps.limits()[0]) == (pid, "50.0")


def test_a_daemon_that_dies_is_told_of_and_comes_back_with_its_limits(mps: MpsScene) -> None:
    supervisor = mps.supervisor()
    supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    states = supervisor.follow(StreamClient(), 0.05)
    mps.machine.spoil_mps("refuse", "start", "not yet")
    pid = mps.kill()
    told(states, lambda states: "was ended by SIGKILL" in states[0].message or "not yet" in states[0].message)
    told(states, lambda states: "did not start: it ended at once, and said: not yet" in states[0].message)
    mps.machine.heal_mps()
    assert told(states, running) == (MpsState(NAME, running=True),)
    assert mps.pid() not in (pid, None)
    assert mps.limits() == ("25.0", "6G")


def test_a_server_that_an_earlier_daemon_left_is_ended_before_the_next_starts(mps: MpsScene) -> None:
    """A server that outlived its daemon would keep a GPU in compute mode EXCLUSIVE_PROCESS for itself."""
    with mps_process("nvidia-cuda-mps-server", pipes=str(mps.folder().pipes)) as left:
        mps.supervisor().ensure(mps.daemon(), DEADLINE_SECONDS)
        assert left.wait(DEADLINE_SECONDS) == -signal.SIGKILL


def test_a_claim_that_comes_while_a_daemon_is_dead_starts_it_at_once(mps: MpsScene) -> None:
    supervisor = mps.supervisor()
    supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    pid = mps.kill()
    supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    assert (mps.pid() not in (pid, None), mps.limits()[0]) == (True, "25.0")


def test_a_dead_daemon_that_is_stopped_stays_away(mps: MpsScene) -> None:
    supervisor = mps.supervisor()
    supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    mps.machine.spoil_mps("refuse", "start", "no")
    mps.kill()
    told(supervisor.follow(StreamClient(), 0.05), lambda states: not running(states))
    supervisor.stop(NAME, DEADLINE_SECONDS)
    assert nothing_is_left(mps, supervisor)


def test_a_daemon_that_does_not_quit_is_killed(mps: MpsScene) -> None:
    supervisor = mps.supervisor()
    supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    client = mps.client()
    mps.machine.spoil_mps("hang", "quit")
    supervisor.stop(NAME, DEADLINE_SECONDS)
    client.close()
    assert nothing_is_left(mps, supervisor)
