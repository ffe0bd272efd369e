"""A request ends at its deadline, whatever the server does with its connection meanwhile."""

import io
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from driver.kube.bounded import AT_ONCE, Arriving
from driver.kube.errors import Silent
from tests.clusters import Object, Unreachable
from tests.driver.kube.raw_server import Conversation, RawServer, client_of
from tests.gpus import ApiError

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def dripping(start: bytes, repeated: bytes) -> Callable[[Conversation], None]:
    def answer(asked: Conversation) -> None:
        asked.send(start)
        asked.drip(repeated)

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        Conversation.say_nothing,
        dripping(b"", b"HTTP/1.1 200 OK and so on"),
        dripping(HEAD, b"X: y\r\n"),
        dripping(HEAD + b"Content-Length: 1000000\r\n\r\n", b" "),
        dripping(CHUNKED, b"1\r\n \r\n"),
        dripping(CHUNKED + b"100000\r\n", b" "),
        dripping(HEAD + b"Connection: close\r\n\r\n", b" "),
        dripping(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 1000000\r\n\r\n", b" "),
    ],
    ids=["nothing", "status", "headers", "body", "chunks", "one chunk", "until it closes", "an error"],
)
def test_an_answer_that_drips_ends_at_the_deadline(
    tmp_path: Path, answer: Callable[[Conversation], None]
) -> None:
    with RawServer(answer) as server, pytest.raises(Unreachable):
        client_of(server, tmp_path).get("/api/v1/nodes/a", timeout_seconds=0.2)


def test_a_repeated_get_has_no_more_time_than_one(tmp_path: Path) -> None:
    """The first answer breaks off when the deadline is past, so there is no second try."""
    now = [0.0]

    def answer(asked: Conversation) -> None:
        now[0] += 11
        asked.send(HEAD + b"Content-Length: 10\r\n\r\n{")

    with RawServer(answer) as server, pytest.raises(Unreachable):
        client_of(server, tmp_path, clock=lambda: now[0]).get("/api/v1/nodes/a")

    assert len(server.lines) == 1


def test_a_watch_has_no_deadline_but_is_not_silent_for_long(tmp_path: Path) -> None:
    def answer(asked: Conversation) -> None:
        asked.send(CHUNKED)
        event = b'{"type":"BOOKMARK","object":{}}\n'
        for _ in range(3):
            asked.send(b"%x\r\n%s\r\n" % (len(event), event))
        asked.say_nothing()

    with RawServer(answer) as server:
        events = iter(client_of(server, tmp_path).watch("/api/v1/nodes", {}, idle_seconds=0.1))

        assert [next(events)[0] for _ in range(3)] == ["BOOKMARK"] * 3
        with pytest.raises(Silent):
            next(events)


def test_no_more_than_some_requests_are_sent_at_once(tmp_path: Path) -> None:
    together = threading.Barrier(AT_ONCE)
    running: list[str] = []
    most = [0]

    def answer(asked: Conversation) -> None:
        running.append(asked.line)
        most[0] = max(most[0], len(running))
        together.wait(10)
        running.pop()
        asked.send_json({})

    with RawServer(answer) as server, ThreadPoolExecutor(2 * AT_ONCE) as pool:
        client = client_of(server, tmp_path)
        assert list(pool.map(lambda _: client.get("/version"), range(2 * AT_ONCE))) == [{}] * 2 * AT_ONCE
    assert most == [AT_ONCE]


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    said = b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"
    with RawServer(lambda asked: asked.send(said)) as server, pytest.raises(ApiError):
        client_of(server, tmp_path).get("/version")
    assert server.lines == ["GET /version HTTP/1.1"]


def test_behind_a_proxy_the_proxy_is_asked(tmp_path: Path) -> None:
    with RawServer(lambda asked: asked.send_json({"major": "1"})) as proxy:
        cluster: Object = {"server": "http://api.example", "proxy-url": f"http://{proxy.address}"}
        client = client_of(proxy, tmp_path, **cluster)
        assert client.get("/version") == {"major": "1"}
    assert proxy.lines == ["GET http://api.example/version HTTP/1.1"]


def test_a_token_cannot_add_a_header(tmp_path: Path) -> None:
    with RawServer(Conversation.say_nothing) as server:
        client = client_of(server, tmp_path)
        with pytest.raises(Unreachable, match="Invalid header value"):
            client.get("/version", accept="application/json\r\nImpersonate-User: admin")
    assert server.lines == []


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (HEAD + b"Content-Length: 2\r\n\r\n{}", {}),
        (HEAD + b"\r\n" + b'{"until": "the end"}', {"until": "the end"}),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"Content-Length: 2\r\n\r\n{}", {}),
        (CHUNKED + b"2;a=b\r\n{}\r\n0\r\nTrailer: x\r\n\r\n", {}),
    ],
)
def test_a_whole_answer_is_read(tmp_path: Path, said: bytes, found: dict[str, str]) -> None:
    with RawServer(lambda asked: asked.send(said)) as server:
        assert client_of(server, tmp_path).get("/version") == found


@pytest.mark.parametrize(
    "said", [b"", HEAD + b"Content-Length: 9\r\n\r\n{}", CHUNKED + b"2\r\n{", b"SSH-2.0 OpenSSH\r\n\r\n"]
)
def test_an_answer_that_breaks_off_or_is_none_is_asked_for_once_more(tmp_path: Path, said: bytes) -> None:
    with RawServer(lambda asked: asked.send(said)) as server, pytest.raises(Unreachable):
        client_of(server, tmp_path).get("/version")
    assert len(server.lines) == 2


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection, the first of which has a timeout of 10 s."""
    near, far = socket.socketpair()
    with near, far:
        near.settimeout(10)
        yield near, far


def raw_of(connected: socket.socket) -> io.RawIOBase:
    return connected.makefile("rb", buffering=0)


def test_each_read_has_what_is_left_of_the_deadline(ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = ends
    now = [0.0]
    arriving = Arriving(near, raw_of(near), lambda: now[0])
    far.sendall(b"abc")

    left = []
    for now[0] in (0.0, 4.0, 9.0):
        assert arriving.readinto(bytearray(1)) == 1
        left.append(near.gettimeout())
    now[0] = 10.0

    assert left == [10, 6, 1]
    with pytest.raises(TimeoutError):
        arriving.readinto(bytearray(1))


def test_what_arrives_outlives_the_socket_that_http_closes_early(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """An answer with Connection: close leaves the connection without its socket before its body is read."""
    near, far = ends
    arriving = Arriving(near, raw_of(near))
    near.close()
    far.sendall(b"a")

    assert arriving.readinto(bytearray(1)) == 1
    arriving.close()
