"""A server binds its socket safely, keeps it to itself, and takes it away at the end."""

from __future__ import annotations

import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from driver.errors import ConfigError
from kubeletplugin.kubelet.grpc_health import Serving, handler
from kubeletplugin.kubelet.wire.server import SocketServer, is_answered, refuse_if_taken
from tests.kubeletplugin.fake_kubelet import FakeKubelet, short_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def server_at(path: Path, pool: ThreadPoolExecutor) -> SocketServer:
    return SocketServer(path, [handler(Serving())], pool)


def leave_stale_socket(path: Path) -> None:
    """What a killed process leaves: a socket that nobody listens at."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_answers_on_a_private_socket_in_a_private_folder(folder: Path, pool: ThreadPoolExecutor) -> None:
    path = folder / "new" / "plugin.sock"
    server = server_at(path, pool)
    server.start()
    with FakeKubelet(path) as kubelet:
        assert kubelet.serving() == "SERVING"
    assert mode(path) == 0o600
    assert mode(path.parent) in (0o750, 0o700), "a umask may take more away"
    server.stop()


def test_stopping_removes_the_socket_and_may_be_repeated(folder: Path, pool: ThreadPoolExecutor) -> None:
    server = server_at(folder / "plugin.sock", pool)
    server.start()
    server.stop()
    server.stop()
    assert list(folder.iterdir()) == []


def test_the_socket_of_a_killed_process_is_replaced(folder: Path, pool: ThreadPoolExecutor) -> None:
    path = folder / "plugin.sock"
    leave_stale_socket(path)
    server = server_at(path, pool)
    server.start()
    assert is_answered(path)
    server.stop()


def test_a_live_server_is_left_alone(folder: Path, pool: ThreadPoolExecutor) -> None:
    path = folder / "plugin.sock"
    first, second = server_at(path, pool), server_at(path, pool)
    first.start()
    with pytest.raises(ConfigError, match="another server answers"):
        second.start()
    second.stop()
    with FakeKubelet(path) as kubelet:
        assert kubelet.serving() == "SERVING"
    first.stop()


def test_a_live_server_with_a_full_backlog_counts_as_live(folder: Path) -> None:
    path = folder / "busy.sock"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(path))
        busy.listen(0)
        waiting.connect(str(path))
        assert is_answered(path)


def test_a_file_that_is_no_socket_is_never_removed(folder: Path, pool: ThreadPoolExecutor) -> None:
    path = folder / "plugin.sock"
    path.write_text("precious")
    with pytest.raises(ConfigError, match="is not a socket"):
        server_at(path, pool).start()
    assert path.read_text() == "precious"


def test_a_link_is_not_followed(folder: Path) -> None:
    leave_stale_socket(folder / "elsewhere.sock")
    (folder / "plugin.sock").symlink_to(folder / "elsewhere.sock")
    with pytest.raises(ConfigError, match="is not a socket"):
        refuse_if_taken(folder / "plugin.sock")
    assert (folder / "elsewhere.sock").exists()


def test_the_socket_of_a_successor_is_not_removed(folder: Path, pool: ThreadPoolExecutor) -> None:
    path = folder / "plugin.sock"
    server = server_at(path, pool)
    server.start()
    path.rename(folder / "moved.sock")
    leave_stale_socket(path)
    inode = path.stat().st_ino
    server.stop()
    assert path.exists()
    assert path.stat().st_ino == inode


def test_the_socket_appears_under_its_own_name_only(folder: Path, pool: ThreadPoolExecutor) -> None:
    leave_stale_socket(folder / ".lugin.sock")
    server = server_at(folder / "plugin.sock", pool)
    server.start()
    assert [path.name for path in folder.iterdir()] == ["plugin.sock"]
    server.stop()


def test_a_path_too_long_for_a_socket_is_refused_at_once(folder: Path, pool: ThreadPoolExecutor) -> None:
    with pytest.raises(ConfigError, match="a unix socket takes 107"):
        server_at(folder / ("x" * 107), pool)


def test_the_longest_path_can_be_served(folder: Path, pool: ThreadPoolExecutor) -> None:
    path = folder / ("x" * (107 - len(str(folder)) - 1))
    server = server_at(path, pool)
    server.start()
    with FakeKubelet(path) as kubelet:
        assert kubelet.serving() == "SERVING"
    server.stop()


def test_a_folder_that_cannot_be_made_is_named(folder: Path, pool: ThreadPoolExecutor) -> None:
    (folder / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot serve at .*/file/plugin.sock"):
        server_at(folder / "file" / "plugin.sock", pool).start()
