"""A server binds its socket safely, keeps it to itself, and takes it away at the end."""

import socket
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from kubeletplugin.kubelet.grpc_health import Serving, handler
from kubeletplugin.kubelet.wire.self_check import HEALTH_CHECK, MPS_WATCH, SILENT_SECONDS, SelfCheck
from kubeletplugin.kubelet.wire.server import is_answered, refuse_if_taken
from tests.clock import Clock
from tests.gpus import ConfigError
from tests.kubeletplugin.fake_kubelet import FakeKubelet, short_folder
from tests.plugin import SocketServer


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
    for _ in range(2):
        server.stop()
        assert list(path.parent.iterdir()) == []


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


def test_a_folder_that_cannot_be_made_is_named(folder: Path, pool: ThreadPoolExecutor) -> None:
    (folder / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot serve at .*/file/plugin.sock"):
        server_at(folder / "file" / "plugin.sock", pool).start()


SERVICE, _, METHOD = HEALTH_CHECK.removeprefix("/").partition("/")


@contextmanager
def serving(folder: Path, served: grpc.GenericRpcHandler, workers: int = 2) -> Iterator[Path]:
    with ThreadPoolExecutor(workers) as pool:
        server = SocketServer(folder / "plugin.sock", [served], pool)
        server.start()
        try:
            yield server.path
        finally:
            server.stop(0)


def answering(answer: Callable[[bytes, grpc.ServicerContext], bytes]) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(
        SERVICE, {METHOD: grpc.unary_unary_rpc_method_handler(answer)}
    )


def test_a_server_that_answers_is_well_also_while_it_does_not_serve(folder: Path) -> None:
    serving_state = Serving("a part that is down")
    with serving(folder, handler(serving_state)) as path:
        clock = Clock()
        check = SelfCheck(path, HEALTH_CHECK, clock)
        clock.now = 2 * SILENT_SECONDS

        assert check.why_not() == ""


def test_a_server_whose_workers_all_hang_is_forgiven_for_a_while_and_again_once_it_answered(
    folder: Path,
) -> None:
    go_on = threading.Event()

    def hang(_request: bytes, _context: grpc.ServicerContext) -> bytes:
        go_on.wait()
        return b""

    with serving(folder, answering(hang), workers=1) as path:
        clock = Clock()
        check = SelfCheck(path, HEALTH_CHECK, clock)
        try:
            clock.now = SILENT_SECONDS
            assert check.why_not() == ""
            clock.now = SILENT_SECONDS + 1
            assert check.why_not() == f"no answer at {path} for {SILENT_SECONDS + 1:.0f} s"
        finally:
            go_on.set()
        assert check.why_not() == ""
        clock.now += SILENT_SECONDS
        assert check.why_not() == ""


@pytest.mark.parametrize("method", [HEALTH_CHECK, MPS_WATCH])
def test_a_socket_that_somebody_has_removed_is_answered_by_nobody(folder: Path, method: str) -> None:
    with serving(folder, handler(Serving())) as path:
        clock = Clock()
        check = SelfCheck(path, method, clock)
        path.unlink()
        clock.now = SILENT_SECONDS + 1

        assert "no answer" in check.why_not()
