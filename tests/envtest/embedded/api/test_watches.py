"""Watches of the embedded API server begin, go on and end as client-go expects."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from envtest.embedded.api import store, watching
from envtest.embedded.api.served import ServerTls
from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import PODS, pod, shown
from tests.eventually import eventually


@contextmanager
def watch_of(server: EmbeddedApiServer, query: str, path: str = PODS) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of a watch that goes on; at the end the client leaves."""
    connection = http.client.HTTPConnection(server.address, timeout=10)
    try:
        begun = server.watches
        connection.request("GET", f"{path}?watch=true&{query}", headers=shown(server))
        answer = connection.getresponse()
        eventually("the watch has begun", lambda: server.watches, lambda count: count > begun)
        yield (json.loads(line) for line in answer)
    finally:
        connection.close()
        answer.close()


def test_a_watch_gets_a_bookmark_before_its_time_is_up(
    server: EmbeddedApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_LAST_BOOKMARK_SECONDS", 599.99)
    now = server.store.resource_version
    query = f"resourceVersion={now}&allowWatchBookmarks=true&timeoutSeconds=600"

    with watch_of(server, query) as lines:
        event = next(lines)

    assert (event["type"], event["object"]["metadata"]) == ("BOOKMARK", {"resourceVersion": str(now)})


def test_a_watch_that_fell_behind_ends_with_the_error_of_a_version_that_is_too_old(
    server: EmbeddedApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_KEPT_CHANGES", 3)
    with watch_of(server, f"resourceVersion={server.store.resource_version}") as lines:
        # All in one go: the watch cannot look in between.
        with server.store.changed:
            for number in range(10):
                server.store.put(("", "pods"), ("", "p"), {"metadata": {"name": "p", "n": "x" * number}})

        [event] = lines

    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_a_write_wakes_no_watch_of_another_kind(server: EmbeddedApiServer) -> None:
    woken: list[str] = []
    condition = server.store.condition(("", "configmaps"))
    begun, changed = threading.Event(), threading.Event()

    def wait() -> None:
        with condition:
            begun.set()
            while not server.store.last_change(("", "configmaps")):
                condition.wait(60)
                woken.append("")
        changed.set()

    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait(10)
    for number in range(20):
        server.create(PODS, pod(f"p{number}"))
    server.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}})

    assert changed.wait(10)
    thread.join()
    assert len(woken) == 1


@pytest.mark.parametrize("is_reset", [False, True])
def test_the_thread_of_a_watch_over_https_ends_with_its_client_too(tmp_path: Path, *, is_reset: bool) -> None:
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    issued = authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.ECDSA)
    issued.cert_chain_pems[0].write_to_path(tmp_path / "crt")
    issued.private_key_pem.write_to_path(tmp_path / "key")
    tls = ServerTls(authority.cert_pem.bytes().decode(), tmp_path / "crt", tmp_path / "key")
    context = ssl.create_default_context(cadata=tls.authority)
    with EmbeddedApiServer(tls=tls) as server:
        before, host, port = threading.active_count(), *server.address.split(":")
        connection = http.client.HTTPSConnection(host, int(port), timeout=10, context=context)
        connection.request("GET", f"{PODS}?watch=true", headers=shown(server))
        answer = connection.getresponse()
        eventually("the watch has begun", lambda: server.watches)
        if is_reset:  # by the kernel, where a socket is closed without lingering
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            answer.close()
            connection.close()
        else:  # the client says that it leaves, and waits in vain for the server to say so too
            connection.sock.settimeout(0)
            with pytest.raises(ssl.SSLWantReadError):
                connection.sock.unwrap()

        eventually("the thread has ended", threading.active_count, lambda count: count <= before, seconds=30)
        connection.close()
        answer.close()
