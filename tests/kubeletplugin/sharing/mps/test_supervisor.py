"""The supervisor runs daemons as it is asked, each with limits that were read back, and ends them."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.gpus import ClaimBlocked, ConfigError
from tests.kubeletplugin.sharing.mps.scene import DEADLINE_SECONDS, NAME, MpsScene, told
from tests.kubeletplugin.stream_client import StreamClient


def test_many_that_wait_for_a_start_that_fails_get_its_error_without_another_try(mps: MpsScene) -> None:
    mps.machine.spoil_mps("refuse", "start", "no room", times=1)
    supervisor = mps.supervisor()

    def error(_: int) -> str:
        try:
            supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
        except ClaimBlocked as blocked:
            return str(blocked)
        return ""

    with ThreadPoolExecutor(8) as pool:
        errors = list(pool.map(error, range(8)))
    assert all("no room" in text for text in errors)


def test_a_running_server_gets_the_limits_as_well(mps: MpsScene) -> None:
    """Defaults alone would reach the next server only, which starts when all clients have left."""
    supervisor = mps.supervisor()
    supervisor.ensure(mps.daemon(percentage=25), DEADLINE_SECONDS)
    with mps.client():
        supervisor.ensure(mps.daemon(percentage=50, pinned=512), DEADLINE_SECONDS)
        with mps.client(process_id=4_000_002) as later:
            assert (later.limits.percentage, later.limits.pinned_mib) == (50.0, {"0": 512})


def test_clients_are_shown_the_one_socket_that_they_need(mps: MpsScene) -> None:
    """By the others, root of a container could end the daemon, change limits, or fill its logs."""
    supervisor = mps.serving()
    folder = mps.folder()
    for _ in range(2):
        assert [path.name for path in folder.clients.iterdir()] == ["control"]
        assert (folder.clients / "control").samefile(folder.control_socket)
        mps.kill()
        supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    mps.machine.spoil_mps("refuse", "set_default_active_thread_percentage", "not now")
    mps.kill()
    told(supervisor.follow(StreamClient(), 0.05), lambda states: "not now" in states[0].message)
    assert list(folder.clients.iterdir()) == [], "no limits, no clients"
    mps.machine.heal_mps()


def test_a_folder_too_deep_for_sockets_is_refused_before_anything_is_made(mps: MpsScene) -> None:
    mps.mps_dir /= "d" * 60
    supervisor = mps.supervisor()
    with pytest.raises(ConfigError, match="control_privileged has 1"):
        supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    assert [entry.name for entry in mps.mps_dir.iterdir()] == [".lock"]


def test_a_second_supervisor_does_not_get_the_folder(mps: MpsScene) -> None:
    mps.supervisor()
    with pytest.raises(ConfigError, match="another MPS supervisor uses the folder"):
        mps.supervisor()


def test_a_daemon_is_started_once_and_leads_a_session_and_with_it_everything_ends(mps: MpsScene) -> None:
    """No signal to the supervisor's group ends it, and clients of any user reach its pipes alone."""
    supervisor, folder, pid = mps.serving(), mps.folder(), mps.pid()
    assert pid is not None
    assert os.getsid(pid) == pid
    shown = (
        mps.mps_dir,
        folder.path,
        folder.pipes,
        folder.logs,
        folder.clients,
        folder.record,
        folder.output,
    )
    modes = [stat.S_IMODE(path.stat().st_mode) for path in shown]
    assert modes == [*[0o711] * 4, 0o755, *[0o600] * 2]
    with ThreadPoolExecutor(48) as pool:
        list(pool.map(lambda _: supervisor.ensure(mps.daemon(), DEADLINE_SECONDS), range(48)))
    assert mps.commands() == 2, "the daemon, and one batch that set its limits and read them"

    with mps.client() as client:
        supervisor.stop(NAME, DEADLINE_SECONDS)
        client.wait_until_dropped()
    assert mps.machine.state.gpus[mps.machine.pci(0)].process_ids == ()
    (mps.mps_dir / ".libraries").mkdir(exist_ok=True)
    mps.end_supervisor()
    assert list(mps.mps_dir.iterdir()) == []
