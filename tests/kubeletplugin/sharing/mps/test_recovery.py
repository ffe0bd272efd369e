"""A supervisor that comes after another ends its daemons, and starts them anew with their limits."""

import signal
from threading import Event
from urllib.request import urlopen

import pytest

from kubeletplugin.kubelet.wire.mps_daemon import SOCKET
from kubeletplugin.sharing.mps.supervisor import Supervisor
from tests.gpus import ClaimBlocked
from tests.kubeletplugin.sharing.mps.scene import DEADLINE_SECONDS, NAME, MpsScene, following, running, told
from tests.kubeletplugin.sharing.mps.supervisor_process import SupervisorProcess
from tests.kubeletplugin.stream_client import StreamClient
from tests.plugin import MpsClient, MpsState


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
    with SupervisorProcess(mps, health_addr="127.0.0.1:0") as process:
        port = process.wait_for("serving probes")["port"]
        for path in ("/startupz", "/livez", "/readyz"):
            with urlopen(f"http://127.0.0.1:{port}{path}", timeout=DEADLINE_SECONDS) as answer:
                assert answer.read() == b"ok\n"
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


def left(mps: MpsScene) -> int | None:
    """The process id of a daemon whose supervisor has ended."""
    mps.serving()
    mps.end_supervisor()
    return mps.pid()


def again(mps: MpsScene) -> Supervisor:
    """The next supervisor, once its daemons run."""
    supervisor = mps.supervisor()
    told(supervisor.follow(StreamClient(), 0.05), running)
    return supervisor


def test_a_daemon_that_outlived_its_supervisor_is_ended_and_another_serves_what_is_recorded(
    mps: MpsScene,
) -> None:
    before = left(mps)
    with mps.client() as cuda:
        assert (mps.pid(), mps.limits()) == (before, ("25.0", "6G"))
        mps.folder().write(mps.daemon(percentage=50, gpu=1))
        again(mps)
        cuda.wait_until_dropped()
    assert mps.pid() not in (before, None)
    assert mps.limits() == ("50.0", "6G")


@pytest.mark.parametrize("record", [b"{", b'{"name": "other"}'])
def test_a_record_that_cannot_be_read_is_put_aside_and_its_daemon_told_of(
    mps: MpsScene, record: bytes
) -> None:
    before, folder = left(mps), mps.folder()
    folder.record.write_bytes(record)
    supervisor = mps.supervisor()
    [state] = supervisor.states().daemons
    assert (state.name, state.running) == (NAME, False)
    assert "its settings are not known" in state.message
    assert folder.record.with_suffix(".unreadable").read_bytes() == record
    supervisor.ensure(mps.daemon(percentage=50), DEADLINE_SECONDS)
    assert mps.pid() not in (before, None)
    assert mps.limits()[0] == "50.0"


def test_a_daemon_without_a_record_can_be_stopped(mps: MpsScene) -> None:
    left(mps)
    mps.folder().record.unlink()
    supervisor = mps.supervisor()
    assert [state.name for state in supervisor.states().daemons] == [NAME]
    supervisor.stop(NAME, DEADLINE_SECONDS)
    assert (supervisor.states().daemons, mps.pid(), mps.folder().path.exists()) == ((), None, False)
