"""The webhook answers reviews over HTTPS, and whatever else is sent to it, it answers the next one."""

import io
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from controller.webhook.server import MOST_BODY_BYTES, MOST_CONNECTIONS
from driver.process.log import configure
from tests.controller.webhook.peer import Pair, Peer, answered, make_pair, served
from tests.controller.webhook.reviewed import asked, claim, config, parameters

JSON = {"Content_Type": "application/json"}
GOOD = asked(claim(config(parameters())))
BAD = asked(claim(config(parameters(**{"very-secret": "swordfish"}))))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def peer(pair: Pair) -> Iterator[Peer]:
    with served(pair) as one:
        yield one


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/validate", None, {}, 405),
        ("GET", "/", None, {}, 404),
        ("POST", "/", b"{}", JSON, 404),
        ("DELETE", "/validate", None, {}, 501),
        ("POST", "/validate", b"{}", {}, 415),
        ("POST", "/validate", None, {**JSON, "Content_Length": "-1"}, 400),
        ("POST", "/validate", None, {**JSON, "Content_Length": "1" * 19}, 400),
        ("POST", "/validate", None, {**JSON, "Content_Length": str(MOST_BODY_BYTES + 1)}, 413),
        ("POST", "/validate", b"", {**JSON, "Transfer_Encoding": "chunked"}, 411),
        ("POST", "/validate", b"", JSON, 400),
        ("POST", "/validate", b"{", JSON, 400),
        ("POST", "/validate", b"[" * 500_000, JSON, 400),
        ("POST", "/validate", b"9" * 5000, JSON, 400),
        ("POST", "/validate", json.dumps({**GOOD, "request": 1}).encode(), JSON, 400),
        (
            *("POST", "/validate", json.dumps(GOOD).encode()),
            *({"Content_Type": "application/json; charset=utf-8"}, 200),
        ),
    ],
)
def test_what_is_no_review_is_refused_and_the_next_one_answered(
    peer: Peer, method: str, path: str, body: bytes | None, headers: dict[str, str], status: int
) -> None:
    assert peer.request(method, path, body, **headers)[0] == status
    assert peer.review(GOOD)["allowed"] is True


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"POST\r\n\r\n",
        b"POST /validate HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /validate HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"GET http://[/ HTTP/1.1\r\n\r\n",
    ],
)
def test_bytes_that_are_no_request_do_not_end_it(peer: Peer, sent: bytes) -> None:
    assert peer.send(sent).startswith((b"HTTP/1.0 4", b"HTTP/1.0 5"))
    assert peer.review(GOOD)["allowed"] is True


def test_a_body_that_ends_early_is_refused(peer: Peer) -> None:
    head = b"POST /validate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    log = io.StringIO()
    configure("info", log)
    with peer.connected() as connection:
        connection.sendall(head + b"{}")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1000):
            pass  # the answer, which is not decrypted any more
    assert "the body is shorter than Content-Length" in log.getvalue()
    assert peer.review(GOOD)["allowed"] is True


def test_a_request_that_takes_too_long_is_given_up(pair: Pair) -> None:
    with served(pair, request_seconds=0.2) as peer, ExitStack() as open_ones:
        silent = open_ones.enter_context(socket.create_connection(("127.0.0.1", peer.port), 20))
        half = open_ones.enter_context(peer.connected())
        half.sendall(b"POST /validate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Le")
        late = open_ones.enter_context(peer.connected())
        late.sendall(
            b"POST /validate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )

        assert silent.recv(1) == b""
        assert answered(half) == b""
        assert answered(late) == b""


@pytest.mark.parametrize("shakes_hands", [False, True])
def test_slow_clients_keep_nobody_else_from_an_answer(pair: Pair, shakes_hands: bool) -> None:
    with served(pair) as peer, ExitStack() as open_ones:
        for _ in range(MOST_CONNECTIONS + 1):
            where = ("127.0.0.1", peer.port)
            slow = open_ones.enter_context(socket.create_connection(where, 20, ("127.0.0.2", 0)))
            if shakes_hands:
                open_ones.enter_context(peer.secured(slow)).sendall(b"POST /validate HTTP/1.1\r\n")
            assert peer.review(GOOD)["allowed"] is True


def test_a_renewed_certificate_is_served_at_once_and_a_broken_one_never(tmp_path: Path) -> None:
    pair = make_pair(tmp_path / "tls")
    first_cert = pair.cert_file.read_bytes()
    with served(pair) as peer:
        first = peer.certificate()
        renewed = make_pair(tmp_path / "renewed")
        renewed.cert_file.replace(pair.cert_file)  # its key is still the old one
        old = Peer(peer.port, tmp_path / "old.crt")
        old.cert_file.write_bytes(first_cert)
        assert old.certificate() == first

        renewed.key_file.replace(pair.key_file)
        second = peer.certificate()
        assert second != first

        pair.key_file.unlink()
        assert peer.certificate() == second
        pair.key_file.write_text("nonsense")
        assert peer.review(GOOD)["allowed"] is True


def test_the_log_says_the_outcome_and_nothing_of_the_object(peer: Peer) -> None:
    log = io.StringIO()
    configure("debug", log)

    peer.review(BAD)
    peer.request("POST", "/validate", b'{"swordfish"', **JSON)
    peer.send(b"GET /swordfish HTTP/1.1\r\nswordfish\r\n\r\n")

    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    (reviewed,) = [line for line in lines if line["event"] == "reviewed"]
    assert reviewed["kind"] == "ResourceClaim"
    assert (reviewed["allowed"], reviewed["errors"]) == (False, 1)
    assert reviewed["op"]
    assert "swordfish" not in log.getvalue()
    assert "very-secret" not in log.getvalue()


def test_versions_of_tls_before_1_2_are_refused(peer: Peer) -> None:
    context: Any = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", peer.port), 20) as plain,
        pytest.raises(OSError, match=r"(?i)alert|version|reset|eof|protocol"),
    ):
        context.wrap_socket(plain)
