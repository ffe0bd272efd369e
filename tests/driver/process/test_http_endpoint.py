"""An endpoint answers on the addresses it was given, of either family, and survives what clients do."""

import itertools
import socket
import threading
from contextlib import ExitStack
from http.client import RemoteDisconnected
from http.server import BaseHTTPRequestHandler

import pytest

from driver.process.http_endpoint import MOST_CONNECTIONS, HttpEndpoint, Server
from tests import needs
from tests.driver.process.served import asked, running
from tests.eventually import eventually
from tests.gpus import ConfigError


class Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Broken(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        raise ValueError("broken")


def bound(address: str, handler: type[BaseHTTPRequestHandler] = Hello) -> HttpEndpoint:
    return HttpEndpoint(address, lambda at: Server(at, handler), what="numbers", flag="--numbers-addr")


WELL = (200, "")


@needs.IPV6
def test_without_a_host_it_answers_on_both_families() -> None:
    with running(bound(":0")) as port:
        assert asked(port) == asked(port, host="::1") == WELL


@pytest.mark.parametrize(
    "address", ["nonsense", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:99999", "[::1]", "203.0.113.1:0"]
)
def test_an_address_that_cannot_be_used_is_named(address: str) -> None:
    with pytest.raises(ConfigError) as raised:
        bound(address)

    assert address in str(raised.value)
    assert "numbers" in str(raised.value)


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_a_taken_port_is_a_clear_error(host: str) -> None:
    with running(bound(f"{host}:0")) as port, pytest.raises(ConfigError) as raised:
        bound(f"{host}:{port}")

    assert f"cannot serve numbers at {host}:{port}" in str(raised.value)
    assert "give --numbers-addr a free host:port" in str(raised.value)


def test_slow_clients_of_a_pod_keep_no_probe_of_the_node_from_its_answer() -> None:
    with running(bound("127.0.0.1:0")) as port, ExitStack() as slow:
        before = threading.active_count()
        for _ in range(MOST_CONNECTIONS + 8):
            client = socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0))
            slow.enter_context(client).sendall(b"GET / HTTP/1.1\r\nX: ")
            assert asked(port) == WELL
        eventually("threads", threading.active_count, lambda now: now <= before + MOST_CONNECTIONS)


def test_a_thread_that_cannot_be_started_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unstarted(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    with running(bound("127.0.0.1:0")) as port:
        with monkeypatch.context() as exhausted:
            exhausted.setattr("driver.process.http_endpoint.threading.Thread", Unstarted)
            for _ in range(2 * MOST_CONNECTIONS + 1):
                with pytest.raises(ConnectionError):
                    asked(port)
        assert asked(port) == WELL


def test_a_request_that_drips_in_is_given_up() -> None:
    with running(bound("127.0.0.1:0")) as port, socket.create_connection(("127.0.0.1", port), 20) as client:
        client.settimeout(0.1)
        request = itertools.chain(b"GET / HTTP/1.1\r\nX: ", itertools.repeat(ord("y")))

        def is_ended() -> bool:
            try:
                client.send(bytes([next(request)]))
                return client.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        eventually("the connection ends", is_ended, seconds=20)


def test_a_handler_that_fails_ends_one_connection_and_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    with running(bound("127.0.0.1:0", Broken)) as port:
        for _ in range(2):
            with pytest.raises(RemoteDisconnected):
                asked(port)

    assert "Exception occurred during processing" not in capsys.readouterr().err
