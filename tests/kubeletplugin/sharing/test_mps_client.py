"""The plugin's client of the MPS supervisor: what it sends, and what it makes of answers and of none."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from typing import cast

import pytest

from kubeletplugin.kubelet.wire.claim_call import answered_by
from kubeletplugin.kubelet.wire.mps_daemon import PROTOCOL, SOCKET, MpsStates
from kubeletplugin.sharing.mps.supervisor import Supervisor, refuse_newer
from proto import mps_v1_pb2 as v1
from tests.gpus import ClaimBlocked
from tests.kubeletplugin.sharing.mps.scene import DEADLINE_SECONDS, NAME, MpsScene, following, served
from tests.plugin import MpsClient, MpsDaemon, MpsState, ProgramHangs


@pytest.fixture
def mps(tmp_path: Path) -> Iterator[MpsScene]:
    scene = MpsScene(tmp_path)
    yield scene
    scene.close()


@contextmanager
def with_client(mps: MpsScene) -> Iterator[tuple[MpsClient, Supervisor]]:
    """A client of a supervisor of this process."""
    supervisor = mps.supervisor()
    with served(mps, supervisor) as server, closing(MpsClient(server.path)) as client:
        yield client, supervisor


def test_a_supervisor_that_is_not_there_is_named_and_found_once_it_is(mps: MpsScene) -> None:
    client = MpsClient(mps.mps_dir / SOCKET)
    with pytest.raises(ClaimBlocked, match=f"no MPS supervisor answers at {mps.mps_dir / SOCKET}: start it"):
        client.stop(NAME)
    with with_client(mps) as (_, supervisor):
        client.ensure(mps.daemon())
        assert supervisor.states().daemons == (MpsState(NAME, running=True),)
        client.close()
    with pytest.raises(ClaimBlocked, match="the plugin is stopping"):
        client.stop(NAME)


def test_a_supervisor_that_takes_too_long_is_asked_again(mps: MpsScene) -> None:
    with with_client(mps) as (client, supervisor):
        mps.machine.spoil_mps("hang", "start")
        # Not for 20 s, where less is left of the kubelet's call.
        with answered_by(time.monotonic() + 0.3), pytest.raises(ProgramHangs, match="did not answer in time"):
            client.ensure(mps.daemon())
        mps.machine.heal_mps()
        supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)


def test_what_the_system_refuses_the_supervisor_is_told_with_a_way_out(
    mps: MpsScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ensure(*_: object) -> MpsStates:
        raise OSError(5, "Input/output error", "/proc/x")

    with with_client(mps) as (client, supervisor):
        monkeypatch.setattr(supervisor, "ensure", ensure)
        with pytest.raises(ClaimBlocked, match=r"Input/output error: '/proc/x': it is tried again"):
            client.ensure(mps.daemon())


class LateStream:
    """A supervisor whose stream still tells how it was before a daemon was started."""

    def __init__(self) -> None:
        self.comes = Event()

    def ensure(self, daemon: MpsDaemon, _timeout_seconds: float) -> MpsStates:
        return MpsStates((MpsState(daemon.name, running=True),), told_ns=7)

    def close(self) -> None:
        """There is nothing to end."""

    def follow(self, _call: object) -> Iterator[MpsStates]:
        yield MpsStates((), told_ns=5)
        assert self.comes.wait(DEADLINE_SECONDS)
        yield MpsStates((MpsState(NAME, running=False, message="it is being started"),), told_ns=6)
        yield MpsStates((), told_ns=8)


def test_what_an_answer_told_is_not_undone_by_a_stream_that_is_late(mps: MpsScene) -> None:
    heard: list[tuple[MpsState, ...] | None] = []
    supervisor, first, last = LateStream(), Event(), Event()

    def update(states: tuple[MpsState, ...] | None) -> None:
        heard.append(states)
        (last if len(heard) > 1 and states == () else first).set()

    with served(mps, cast("Supervisor", supervisor)) as server:
        client = MpsClient(server.path)
        with following(client, update):
            assert first.wait(DEADLINE_SECONDS)
            client.ensure(mps.daemon())
            assert heard == [(), (MpsState(NAME, running=True),)], "before the answer is given to the caller"
            supervisor.comes.set()
            assert last.wait(DEADLINE_SECONDS)
    assert heard[:3] == [(), (MpsState(NAME, running=True),), ()]


def test_a_supervisor_refuses_what_a_newer_plugin_says_and_names_the_way_out() -> None:
    refuse_newer(v1.Daemon(name=NAME, protocol=PROTOCOL))
    refuse_newer(v1.Daemon(name=NAME))
    with pytest.raises(ClaimBlocked, match=rf"version {PROTOCOL + 1} .* at most {PROTOCOL}: delete the"):
        refuse_newer(v1.Daemon(name=NAME, protocol=PROTOCOL + 1))
