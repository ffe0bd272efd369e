"""A supervisor that comes after another ends its daemons, and starts them anew with their limits."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

import pytest

from driver.errors import ClaimBlocked
from kubeletplugin.kubelet.wire.mps_daemon import SOCKET, MpsState
from kubeletplugin.sharing.mps_client import MpsClient
from tests.kubeletplugin.sharing.mps.scene import (
    DEADLINE_SECONDS,
    NAME,
    MpsScene,
    following,
    running,
    told,
)
from tests.kubeletplugin.sharing.mps.supervisor_process import SupervisorProcess
from tests.kubeletplugin.stream_client import StreamClient

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def served(mps: MpsScene) -> Iterator[tuple[SupervisorProcess, MpsClient]]:
    """A supervisor as a process of its own, and a client of it; the daemons stay."""
    client = MpsClient(mps.mps_dir / SOCKET)
    with SupervisorProcess(mps) as process:
        try:
            yield process, client
        finally:
            client.close()


def states_until_running(client: MpsClient) -> list[tuple[MpsState, ...] | None]:
    """What a client hears, until all daemons run."""
    heard: list[tuple[MpsState, ...] | None] = []
    done = Event()

    def update(states: tuple[MpsState, ...] | None) -> None:
        heard.append(states)
        if states and running(states):
            done.set()

    with following(client, update):
        assert done.wait(DEADLINE_SECONDS), heard
    return heard


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_daemon_that_outlived_its_supervisor_is_ended_and_another_is_started(
    mps: MpsScene, how: signal.Signals
) -> None:
    with served(mps) as (process, client):
        client.ensure(mps.daemon())
        pid = mps.pid()
        with mps.client() as cuda:
            process.end(how)
            assert (mps.pid(), mps.limits()) == (pid, ("25.0", "6G"))
            with served(mps) as (_, again):
                assert states_until_running(again)[-1] == (MpsState(NAME, running=True),)
                cuda.wait_until_dropped()
                assert mps.pid() not in (pid, None)
                assert mps.limits() == ("25.0", "6G")


def test_what_shall_run_is_started_by_the_next_supervisor(mps: MpsScene) -> None:
    """In a container both end together; what shall run is on disk."""
    mps.folder().write(mps.daemon(percentage=50))
    supervisor = mps.supervisor()
    told(supervisor.follow(StreamClient(), 0.05), running)
    assert mps.limits()[0] == "50.0"


def test_a_daemon_that_serves_something_else_than_its_record_says_is_replaced(mps: MpsScene) -> None:
    with served(mps) as (process, client):
        client.ensure(mps.daemon())
        process.end(signal.SIGKILL)
    pid = mps.pid()
    mps.folder().write(mps.daemon(gpu=1))
    supervisor = mps.supervisor()
    told(supervisor.follow(StreamClient(), 0.05), running)
    assert mps.pid() not in (pid, None)


@pytest.mark.parametrize("record", [b"{", b"", b'{"name": "other"}'])
def test_a_record_that_cannot_be_read_is_put_aside_and_its_daemon_told_of(
    mps: MpsScene, record: bytes
) -> None:
    with served(mps) as (process, client):
        client.ensure(mps.daemon())
        process.end(signal.SIGKILL)
    pid, folder = mps.pid(), mps.folder()
    folder.record.write_bytes(record)
    supervisor = mps.supervisor()
    [state] = supervisor.states().daemons
    assert (state.name, state.running) == (NAME, False)
    assert "its settings are not known" in state.message
    assert folder.record.with_suffix(".unreadable").read_bytes() == record
    supervisor.ensure(mps.daemon(percentage=50), DEADLINE_SECONDS)
    assert mps.pid() not in (pid, None)
    assert mps.limits()[0] == "50.0"


def test_a_daemon_without_a_record_can_be_stopped(mps: MpsScene) -> None:
    with served(mps) as (process, client):
        client.ensure(mps.daemon())
        process.end(signal.SIGKILL)
    mps.folder().record.unlink()
    supervisor = mps.supervisor()
    assert [state.name for state in supervisor.states().daemons] == [NAME]
    supervisor.stop(NAME, DEADLINE_SECONDS)
    assert (supervisor.states().daemons, mps.pid(), mps.folder().path.exists()) == ((), None, False)


def test_a_client_hears_that_the_supervisor_has_gone_and_that_it_is_back(mps: MpsScene) -> None:
    heard: list[tuple[MpsState, ...] | None] = []
    there, gone, back = Event(), Event(), Event()

    def update(states: tuple[MpsState, ...] | None) -> None:
        heard.append(states)
        if states is None:
            gone.set()
        elif gone.is_set() and running(states):
            back.set()
        elif running(states):
            there.set()

    client = MpsClient(mps.mps_dir / SOCKET)
    with SupervisorProcess(mps) as process:
        client.ensure(mps.daemon())
        with following(client, update):
            assert there.wait(DEADLINE_SECONDS), heard
            process.end(signal.SIGKILL)
            assert gone.wait(DEADLINE_SECONDS), heard
            with pytest.raises(ClaimBlocked, match="no MPS supervisor answers at"):
                client.ensure(mps.daemon())
            with SupervisorProcess(mps):
                client.ensure(mps.daemon())
                assert back.wait(DEADLINE_SECONDS), heard
