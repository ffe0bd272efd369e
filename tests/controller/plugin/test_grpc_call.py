"""A call ends with the status of the server, or with that of what kept it from answering."""

import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from controller.plugin.grpc_call import CallFailed, GrpcCall
from kubeletplugin.kubelet.wire.server import stream_method
from proto import node_state_v1_pb2 as v1
from tests.kubeletplugin.fake_kubelet import short_folder

WATCH = "/a.Service/Watch"


class Server:
    """Answers WATCH with the states, then with a status, or never."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.requests: list[str] = []
        self.states: list[v1.State] = []
        self.status: grpc.StatusCode | None = None
        self.ended = threading.Event()
        self.hold = threading.Event()
        self.hold.set()
        self._server = grpc.server(ThreadPoolExecutor(2))
        methods = {"Watch": stream_method(self._watch, v1.WatchRequest, v1.State)}
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.Service", methods)])
        self._server.add_insecure_port(f"unix:{path}")
        self._server.start()

    def _watch(self, request: v1.WatchRequest, context: grpc.ServicerContext) -> Iterator[v1.State]:
        self.requests.append(request.controller)
        context.add_callback(self.ended.set)
        yield from self.states
        self.hold.wait()
        if self.status is not None:
            context.abort(self.status, "because: ü")

    def stop(self) -> None:
        ended = self._server.stop(None)
        self.hold.set()
        ended.wait()


@pytest.fixture
def server() -> Generator[Server]:
    with short_folder() as folder:
        server = Server(folder / "a.sock")
        yield server
        server.stop()


def failure(call: GrpcCall) -> str:
    with pytest.raises(CallFailed) as failed:
        list(call)
    return failed.value.code


def test_request_and_answers_arrive_whole(server: Server) -> None:
    server.states = [v1.State(held=["a-gpu"] * count) for count in (0, 1, 40_000)]

    answers = list(GrpcCall(server.path, WATCH, v1.WatchRequest(controller="höher").SerializeToString()))

    assert [v1.State.FromString(answer) for answer in answers] == server.states
    assert server.requests == ["höher"]


@pytest.mark.parametrize("status", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAUTHENTICATED])
def test_the_status_of_the_server_is_the_code(server: Server, status: grpc.StatusCode) -> None:
    server.states, server.status = [v1.State(let_go=1)], status
    assert failure(GrpcCall(server.path, WATCH, b"")) == status.name


def test_a_method_that_the_server_does_not_have_is_unimplemented(server: Server) -> None:
    assert failure(GrpcCall(server.path, "/a.Service/Other", b"")) == "UNIMPLEMENTED"


def test_a_call_that_takes_too_long_fails_and_ends_at_the_server(server: Server) -> None:
    server.hold.clear()
    assert failure(GrpcCall(server.path, WATCH, b"", timeout_seconds=0.1)) == "DEADLINE_EXCEEDED"
    assert server.ended.wait(10)


def test_a_cancelled_call_ends_on_both_sides(server: Server) -> None:
    server.hold.clear()
    server.states = [v1.State(let_go=1)]
    call = GrpcCall(server.path, WATCH, b"")
    answers = iter(call)
    next(answers)
    call.cancel()
    with pytest.raises(CallFailed, match="CANCELLED"):
        next(answers)
    assert server.ended.wait(10)


def test_a_call_may_be_cancelled_before_anybody_waits_for_its_answers(server: Server) -> None:
    server.hold.clear()
    call = GrpcCall(server.path, WATCH, b"")
    call.cancel()
    assert failure(call) == "CANCELLED"


def test_a_server_that_comes_late_is_reached_by_the_next_call(server: Server) -> None:
    """A plugin makes its socket when it is ready; the call before must not hold back the one after."""
    server.stop()
    assert failure(GrpcCall(server.path, WATCH, b"")) == "UNAVAILABLE"
    later = Server(server.path)
    assert list(GrpcCall(server.path, WATCH, b"")) == []
    later.stop()


def test_without_a_server_a_call_is_unavailable(server: Server) -> None:
    assert failure(GrpcCall(server.path.with_name("none.sock"), WATCH, b"")) == "UNAVAILABLE"
    server.hold.clear()
    server.states = [v1.State(let_go=1)]
    answers = iter(GrpcCall(server.path, WATCH, b""))
    next(answers)
    server.stop()
    with pytest.raises(CallFailed, match=r"UNAVAILABLE|CANCELLED"):
        list(answers)
