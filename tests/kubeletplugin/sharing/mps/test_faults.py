"""A daemon that cannot start, hangs, dies, lies or refuses is told of in its own words, and mended."""

import signal
from collections.abc import Callable

import pytest

from kubeletplugin.sharing.mps.processes import CONTROL
from kubeletplugin.sharing.mps.supervisor import Supervisor
from tests.clusters import Object
from tests.gpus import ClaimBlocked, DriverError, NodeIncomplete
from tests.kubeletplugin.sharing.mps.scene import DEADLINE_SECONDS, NAME, MpsScene, mps_process, running, told
from tests.kubeletplugin.stream_client import StreamClient
from tests.plugin import MpsState

PERCENTAGE, PINNED = "set_default_active_thread_percentage", "set_default_device_pinned_mem_limit"


def nothing_is_left(mps: MpsScene, supervisor: Supervisor) -> bool:
    return mps.pid() is None and supervisor.states().daemons == () and not mps.folder().path.exists()


Spoil = Callable[[MpsScene], object]
STARTS: dict[str, tuple[Spoil, Object, type[DriverError], str]] = {
    "no program": (
        lambda mps: (mps.root / "usr/bin" / CONTROL).unlink(),
        {},
        NodeIncomplete,
        f"{CONTROL} is missing below",
    ),
    "a start that hangs": (
        lambda mps: mps.machine.spoil_mps("hang", "start"),
        {"start_seconds": 1},
        ClaimBlocked,
        "did not answer within 1 s",
    ),
    "an end while it is limited": (
        lambda mps: mps.machine.spoil_mps("die", PERCENTAGE, times=1),
        {},
        ClaimBlocked,
        rf"ended at once, and said: .*Cmd:{PERCENTAGE} 25",
    ),
    "a daemon that hangs while it is limited": (
        lambda mps: mps.machine.spoil_mps("hang", PINNED),
        {"command_seconds": 1},
        ClaimBlocked,
        f"{NAME} does not answer: {CONTROL} did not end within",
    ),
    "a limit that is refused": (
        lambda mps: mps.machine.spoil_mps("refuse", PINNED, "not on this GPU", times=1),
        {},
        ClaimBlocked,
        "refused its limits: not on this GPU",
    ),
}


@pytest.mark.parametrize(("spoil", "seconds", "error", "words"), STARTS.values(), ids=STARTS)
def test_a_daemon_that_does_not_start_is_told_of_and_leaves_nothing(
    mps: MpsScene, spoil: Spoil, seconds: Object, error: type[DriverError], words: str
) -> None:
    spoil(mps)
    supervisor = mps.supervisor(mps.site(**seconds))
    with pytest.raises(error, match=words):
        supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    assert nothing_is_left(mps, supervisor)


def test_what_clients_wrote_into_a_log_is_quoted_without_what_harms_a_terminal(mps: MpsScene) -> None:
    folder = mps.folder()
    folder.logs.mkdir(parents=True)
    with (folder.logs / "control.log").open("a") as log:
        log.write(f"\x1b[2J{'x' * 4000}\n\x1b]8;;http://evil\x07the end\n")

    words = folder.last_words()

    assert words.isprintable()
    assert words.endswith("the end")
    assert len(words) < 1000


def test_a_running_server_that_lies_about_its_limits_is_found(mps: MpsScene) -> None:
    supervisor = mps.serving()
    with mps.client() as client:
        mps.machine.spoil_mps("lie", "set_active_thread_percentage", "90")
        with pytest.raises(ClaimBlocked, match=rf"90.0 where 50 was set \(server {client.limits.server}\)"):
            supervisor.ensure(mps.daemon(percentage=50), DEADLINE_SECONDS)


def test_new_limits_that_are_refused_end_no_client_and_are_tried_again(mps: MpsScene) -> None:
    supervisor = mps.serving()
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
    supervisor = mps.serving()
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
        mps.serving()
        assert left.wait(DEADLINE_SECONDS) == -signal.SIGKILL


def test_a_dead_daemon_that_is_stopped_stays_away(mps: MpsScene) -> None:
    supervisor = mps.serving()
    mps.machine.spoil_mps("refuse", "start", "no")
    mps.kill()
    told(supervisor.follow(StreamClient(), 0.05), lambda states: not running(states))
    supervisor.stop(NAME, DEADLINE_SECONDS)
    assert nothing_is_left(mps, supervisor)


def test_a_daemon_that_does_not_quit_is_killed(mps: MpsScene) -> None:
    supervisor = mps.serving()
    client = mps.client()
    mps.machine.spoil_mps("hang", "quit")
    supervisor.stop(NAME, DEADLINE_SECONDS)
    client.close()
    assert nothing_is_left(mps, supervisor)
