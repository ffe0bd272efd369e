"""A supervisor that hangs begins anew in its own process, and its daemons do not notice."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kubeletplugin.kubelet.wire.mps_daemon import SOCKET
from kubeletplugin.sharing.mps.supervisor import Watchdog
from kubeletplugin.sharing.mps_client import MpsClient
from tests.eventually import eventually
from tests.kubeletplugin.sharing.mps.hanging_supervisor import HANGS
from tests.kubeletplugin.sharing.mps.supervisor_process import SupervisorProcess

if TYPE_CHECKING:
    from tests.kubeletplugin.sharing.mps.scene import MpsScene


@pytest.mark.parametrize(
    ("looks", "starts"),
    [("", 0), ("hhh", 1), ("hh", 0), ("hhwhh", 0), ("hhwhhh", 1), ("www", 0)],
)
def test_it_begins_anew_once_three_looks_in_a_row_find_that_it_hangs(looks: str, starts: int) -> None:
    answers = iter("hangs" if look == "h" else "" for look in looks)
    begun: list[None] = []
    watchdog = Watchdog(lambda: next(answers), lambda: begun.append(None))
    for _ in looks:
        watchdog.check()
    assert len(begun) == starts


def test_daemons_outlive_a_supervisor_that_hangs_and_their_end_is_still_noticed(mps: MpsScene) -> None:
    client = MpsClient(mps.mps_dir / SOCKET)
    with SupervisorProcess(mps):
        client.ensure(mps.daemon())
    daemon = mps.pid()
    assert daemon is not None

    mps.mps_dir.with_name(HANGS).touch()
    with SupervisorProcess(mps, module="tests.kubeletplugin.sharing.mps.hanging_supervisor") as hangs:
        hangs.wait_for("the supervisor hangs and restarts itself; its daemons keep running")
        eventually("it serves anew", lambda: str(hangs.lines).count('"serving"'), lambda times: times == 2)
        assert hangs.is_alive()
        client.ensure(mps.daemon())
        assert mps.pid() == daemon

        os.kill(daemon, signal.SIGKILL)
        eventually("another one runs", mps.pid, lambda pid: pid not in (None, daemon))
    client.close()


def test_a_daemon_that_the_same_process_started_before_leaves_no_zombie(mps: MpsScene) -> None:
    client = MpsClient(mps.mps_dir / SOCKET)
    with SupervisorProcess(mps, module="tests.kubeletplugin.sharing.mps.hanging_supervisor") as hangs:
        client.ensure(mps.daemon())
        daemon = mps.pid()
        assert daemon is not None
        mps.mps_dir.with_name(HANGS).touch()
        eventually("it serves anew", lambda: str(hangs.lines).count('"serving"'), lambda times: times == 2)
        client.ensure(mps.daemon())
        assert mps.pid() == daemon

        os.kill(daemon, signal.SIGKILL)
        eventually("it is gone from the table of processes", lambda: not Path(f"/proc/{daemon}").exists())
    client.close()
