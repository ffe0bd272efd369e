"""A daemon and its clients exchange memory of a limited size of their own."""

import errno
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletplugin.kubelet.wire.mps_daemon import SOCKET
from kubeletplugin.sharing.mps import mounts
from kubeletplugin.sharing.mps.daemon_shm import NODE_SHM, DaemonMemory, is_shared_mount
from tests import needs
from tests.gpus import ClaimBlocked, ConfigError
from tests.kubeletplugin.sharing.mps.scene import (
    DEADLINE_SECONDS,
    MpsScene,
    has_rights_over_the_node,
    running,
    told,
)
from tests.kubeletplugin.sharing.mps.supervisor_process import SupervisorProcess
from tests.kubeletplugin.stream_client import StreamClient
from tests.plugin import MpsClient

MIB = 1 << 20
WITHOUT_MOUNTS = ("setpriv", *(("--bounding-set", "-sys_admin") if has_rights_over_the_node() else ()))


@pytest.fixture
def tmp_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder outside of /dev/shm, like all temporary files here: daemons get a /dev/shm of their own."""
    monkeypatch.setattr(tempfile, "tempdir", "/var/tmp")
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def own(mps: MpsScene) -> Iterator[DaemonMemory]:
    """Memory of 2 MiB; what a test leaves mounted is unmounted."""
    memory = DaemonMemory(2, Path("/proc"))
    yield memory
    memory.remove(mps.folder())


def fill(path: Path) -> int:
    """Write until there is no room; how much there was."""
    written = 0
    with path.open("wb") as file:
        try:
            while written < 1 << 30:
                written += os.write(file.fileno(), bytes(MIB))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    return written


def shm_of(pid: int | None) -> Path:
    """What a process has as /dev/shm."""
    return Path(f"/proc/{pid}/root/dev/shm")


@needs.MOUNTS
def test_a_daemon_sees_memory_of_its_own_that_no_client_can_overfill(
    mps: MpsScene, own: DaemonMemory
) -> None:
    supervisor = mps.serving(own)
    folder = mps.folder()
    assert shm_of(mps.pid()).samefile(folder.shm)
    assert not folder.shm.samefile(NODE_SHM)
    assert folder.shm.stat().st_mode & 0o7777 == 0o1777
    assert fill(folder.shm / "all") == 2 * MIB
    (folder.shm / "all").unlink()
    supervisor.stop(mps.daemon().name, DEADLINE_SECONDS)
    assert not folder.path.exists()


@needs.MOUNTS
def test_a_daemon_whose_logs_are_full_serves_and_is_started_anew_with_room_for_new_ones(
    mps: MpsScene, own: DaemonMemory
) -> None:
    """A client that connects again and again has a line written for each time."""
    supervisor, folder = mps.serving(own), mps.folder()
    logs = folder.logs
    assert logs.stat().st_dev not in (folder.shm.stat().st_dev, folder.path.stat().st_dev)
    assert fill(logs / "server.log") < 20 * MIB
    with mps.client() as client:
        assert client.limits.percentage == 25.0
    (folder.shm / "of a container").touch()
    mps.kill()
    supervisor.ensure(mps.daemon(), DEADLINE_SECONDS)
    assert [path.name for path in shm_of(mps.pid()).iterdir()] == ["of a container"]
    assert (logs / "control.log").read_text().startswith("[")
    assert "Starting control daemon" in (logs / "control.log.1").read_text()
    assert sorted(path.name for path in logs.iterdir()) == ["control.log", "control.log.1", "output"]


@needs.MOUNTS
def test_the_next_supervisor_starts_a_daemon_with_the_memory_that_containers_have(
    mps: MpsScene, own: DaemonMemory
) -> None:
    client = MpsClient(mps.mps_dir / SOCKET)
    with SupervisorProcess(mps, mounts=True) as process:
        client.ensure(mps.daemon())
        client.close()
        (mps.folder().shm / "of a container").touch()
        process.end(signal.SIGKILL)
    supervisor = mps.supervisor(mps.site(memory=own))
    told(supervisor.follow(StreamClient(), 0.05), running)
    assert [path.name for path in shm_of(mps.pid()).iterdir()] == ["of a container"]


@needs.SETPRIV
def test_without_the_right_to_mount_nothing_starts_and_the_way_out_is_said(mps: MpsScene) -> None:
    client = MpsClient(mps.mps_dir / SOCKET)
    with SupervisorProcess(mps, mounts=True, launcher=WITHOUT_MOUNTS):
        with pytest.raises(ClaimBlocked, match=r"cannot mount a tmpfs at .*/shm: Operation not") as error:
            client.ensure(mps.daemon())
        client.close()
    assert "run the supervisor privileged" in error.value.what
    assert mps.pid() is None
    assert not mps.folder().path.exists()


@needs.MOUNTS
@pytest.mark.parametrize("shm_mib", [2, None])
def test_a_link_to_a_mount_of_the_node_never_has_that_unmounted(
    mps: MpsScene, shm_mib: int | None, tmp_path: Path
) -> None:
    folder, of_node = mps.folder(), tmp_path / "node"
    of_node.mkdir()
    mounts.mount_tmpfs(str(of_node), 1, 0o755, 16)
    try:
        folder.path.mkdir(parents=True)
        folder.shm.symlink_to(of_node)
        DaemonMemory(shm_mib, Path("/proc")).remove(folder)
        assert of_node.is_mount()
        with pytest.raises(OSError, match="Invalid argument"):
            mounts.unmount(str(folder.shm))
        assert of_node.is_mount()
    finally:
        mounts.unmount(str(of_node))


HOST = "22 1 0:21 / / rw - ext4 /dev/vda rw\n30 22 0:5 / /run/gpu rw shared:7 master:1 - tmpfs tmpfs rw\n"


@pytest.mark.parametrize(
    ("path", "expected"), [("/run/gpu/mps", True), ("/run/gpu", True), ("/run/gpus", False), ("/run", False)]
)
def test_whether_a_mount_is_passed_on_stands_in_the_table_of_mounts(path: str, *, expected: bool) -> None:
    assert is_shared_mount(Path(path), HOST) is expected


def test_the_last_mount_at_a_path_counts_and_names_are_unescaped() -> None:
    over = HOST + "31 30 0:6 / /run/gpu rw - tmpfs tmpfs rw\n"
    assert not is_shared_mount(Path("/run/gpu/mps"), over)
    assert is_shared_mount(Path("/a b"), HOST + "32 22 0:7 / /a\\040b rw shared:9 - tmpfs tmpfs rw\n")
    assert not is_shared_mount(Path("/run"), "")


@pytest.mark.parametrize(
    ("shared", "same", "fine"), [(True, False, True), (False, True, True), (False, False, False)]
)
def test_a_container_whose_mounts_stay_inside_is_refused(
    tmp_path: Path, *, shared: bool, same: bool, fine: bool
) -> None:
    for name, namespace in (("1", "mnt:[1]"), ("self", "mnt:[1]" if same else "mnt:[2]")):
        (tmp_path / name / "ns").mkdir(parents=True)
        (tmp_path / name / "ns" / "mnt").symlink_to(namespace)
    how = "shared:7" if shared else "master:7"
    (tmp_path / "self" / "mountinfo").write_text(f"30 22 0:5 / / rw {how} - tmpfs tmpfs rw\n")
    memory = DaemonMemory(2, tmp_path)
    if fine:
        memory.check(Path("/run/mps"))
        return
    with pytest.raises(ConfigError, match="are not visible on the host") as error:
        memory.check(Path("/run/mps"))
    assert "mountPropagation: Bidirectional" in error.value.way_out
