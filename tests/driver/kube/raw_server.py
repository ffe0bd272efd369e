"""A server of bytes: it may drip an answer, close in the middle of one, or stay silent, over TCP or TLS."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from driver.kube.credentials import Credentials
from tests.clusters import KubeClient
from tests.driver.kube.kubeconfigs import written_kubeconfig

Answer = Callable[["Conversation"], None]


class Conversation:
    """One request, of which ``line`` is the first line; its connection ends when the answer returns."""

    def __init__(self, connection: socket.socket, line: str, over: threading.Event) -> None:
        self.line = line
        self._connection = connection
        self._over = over

    def send(self, data: bytes) -> None:
        """Send these bytes at once."""
        self._connection.sendall(data)

    def send_json(self, document: Any) -> None:
        """Send a whole answer, after which the connection ends."""
        body = json.dumps(document).encode()
        self.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def drip(self, data: bytes) -> None:
        """Send these bytes one by one, a hundred a second, again and again, until the other side has gone."""
        while not self._over.is_set():
            for byte in data:
                self.send(bytes([byte]))
                self._over.wait(0.01)

    def say_nothing(self) -> None:
        """Keep the connection until the server ends."""
        self._over.wait()


class RawServer:
    """Listens on 127.0.0.1 while it is entered; ``answer`` has a thread for each request."""

    def __init__(self, answer: Answer, context: ssl.SSLContext | None = None) -> None:
        self.lines: list[str] = []
        self.context = context
        self._answer = answer
        self._over = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listening.close()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            spoken = connection
            if self.context is not None:
                spoken = self.context.wrap_socket(connection, server_side=True)
            with spoken, spoken.makefile("rb") as incoming:
                head = iter(incoming.readline, b"\r\n")
                line = next(head).decode().strip()
                if line and list(head):
                    self.lines.append(line)
                    self._answer(Conversation(spoken, line, self._over))


def client_of(
    server: RawServer, folder: Path, /, clock: Callable[[], float] = time.monotonic, **cluster: Any
) -> KubeClient:
    """A client of the server, by a kubeconfig in ``folder`` whose cluster may say more."""
    scheme = "http" if server.context is None else "https"
    path = written_kubeconfig(folder / "kubeconfig", f"{scheme}://{server.address}", {}, **cluster)
    return KubeClient(Credentials(path), "test", clock=clock)
