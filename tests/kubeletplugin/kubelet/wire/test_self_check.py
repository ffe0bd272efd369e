"""A process notices over its own socket that its server hangs, and forgives one that is busy for a while."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import grpc
import pytest

from kubeletplugin.kubelet.grpc_health import Serving, handler
from kubeletplugin.kubelet.wire.self_check import HEALTH_CHECK, MPS_WATCH, SILENT_SECONDS, SelfCheck
from kubeletplugin.kubelet.wire.server import SocketServer
from tests.kubeletplugin.fake_kubelet import short_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SERVICE, _, METHOD = HEALTH_CHECK.removeprefix("/").partition("/")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@contextmanager
def serving(folder: Path, served: grpc.GenericRpcHandler, workers: int = 2) -> Iterator[Path]:
    with ThreadPoolExecutor(workers) as pool:
        server = SocketServer(folder / "plugin.sock", [served], pool)
        server.start()
        try:
            yield server.path
        finally:
            server.stop(0)


def answering(
    answer: Callable[[bytes, grpc.ServicerContext], bytes],
) -> grpc.GenericRpcHandler:
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


def test_a_server_that_refuses_has_answered(folder: Path) -> None:
    def refuse(_request: bytes, context: grpc.ServicerContext) -> NoReturn:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many")

    with serving(folder, answering(refuse)) as path:
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
