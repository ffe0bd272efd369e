"""The API that connections of the API server share, and the listener that accepts these connections."""

from __future__ import annotations

import selectors
import socket
import ssl
import sys
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import TYPE_CHECKING, Any

from envtest.embedded.api import unforeseen
from envtest.embedded.api.faults import Faults
from envtest.embedded.api.requests import Request, User
from envtest.embedded.api.store import Store
from envtest.embedded.api.verbs import Verbs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedIOBase

    from envtest.embedded.api.container_log import ContainerLog
    from envtest.embedded.api.wire import HttpRequest

    FindLog = Callable[[str, str], ContainerLog | None]
    AdmitClient = Callable[[HttpRequest, Request | None], User]


_KEPT_REQUESTS = 10_000


def _no_log(_pod_uid: str, _container: str) -> ContainerLog | None:
    return None


@dataclass(frozen=True, slots=True)
class ServerTls:
    """How a server speaks HTTPS.

    ``authority`` (PEM) is what clients are to trust: its own certificate, or that of its issuer.
    ``certificate_file`` has the server's certificate with its chain, ``key_file`` the key.
    """

    authority: str
    certificate_file: Path
    key_file: Path

    def context(self) -> ssl.SSLContext:
        """The context for connections; raises OSError and ssl.SSLError for unusable files."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate_file, self.key_file)
        return context


class ServedApi:
    """A stateful API as its connections see it.

    ``faults`` makes requests fail. ``verbs`` has the switches
    of an older server. Each watch sends a bookmark when ``bookmarks_due`` rises, and ends when
    ``watch_generation`` rises; ``watches`` counts the watches that began. ``find_log`` finds the log of a
    container, by the UID of its pod and its own name. ``admit_client`` finds the user of a request, from its
    head and what it is about, and raises Refused where they may not. ``minor`` is
    the minor version of Kubernetes that ``/version`` answers, ``host`` the address to listen at, and
    ``ahead_seconds`` is added to this machine's time in the Date of answers.
    """

    admit_client: AdmitClient

    def __init__(self, tls: ServerTls | None = None) -> None:
        self.tls = tls
        self.store = Store()
        self.verbs = Verbs(self.store)
        self.faults = Faults()
        self.minor = "37"
        self.host = "127.0.0.1"
        self.ahead_seconds = 0.0
        self.requests: deque[Request] = deque(maxlen=_KEPT_REQUESTS)
        self.bookmarks_due = 0
        self.watch_generation = 0
        self.watches = 0
        self.find_log: FindLog = _no_log
        self._listener: Listener | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Where it listens; stays the same when it is stopped and started again."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{host}:{self._port}"

    @property
    def address(self) -> str:
        """``host:port`` of ``url``."""
        return self.url.partition("://")[2]

    @property
    def running(self) -> bool:
        """Whether it accepts connections."""
        return self._listener is not None

    def serves(self, listener: object) -> bool:
        """Whether ``listener`` is the one that runs now; connections of an earlier one have to end."""
        return self._listener is listener

    def watch_began(self) -> None:
        """Count a watch that will send every change from now on."""
        with self.store.changed:
            self.watches += 1


class Listener(ThreadingTCPServer):
    """One bound port; remembers its connections so that they end when it does.

    It also notices when a client leaves while its answer, a watch for example, goes on.
    """

    # Neither the end of the process nor ``server_close`` waits for threads: those of watches run for long.
    daemon_threads = True
    block_on_close = False
    # SO_REUSEADDR: without it, connections in TIME_WAIT would keep the port from the next start.
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self,
        host: str,
        port: int,
        handler: type[BaseRequestHandler],
        api: object,
        tls: ServerTls | None = None,
    ) -> None:
        """Bind the port on an address of loopback; ``handler`` finds ``api`` at its server."""
        self._tls = None if tls is None else tls.context()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.api = api
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._streaming = selectors.DefaultSelector()
        super().__init__((host, port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection, and answer it in a thread of its own."""
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer the requests of a connection, in its thread; with HTTPS after the handshake."""
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        # The socket moves into the wrapping one, so ``end`` has to know that one.
        with self._tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as wrapped:
            with self._lock:
                self._connections.discard(request)
                self._connections.add(wrapped)
            try:
                wrapped.do_handshake()
                super().finish_request(wrapped, client_address)
            except ssl.SSLError as error:
                # A client that does not trust the certificate, or speaks no TLS: its own affair.
                raise ConnectionAbortedError(str(error)) from error
            finally:
                with self._lock:
                    self._connections.discard(wrapped)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection and close it."""
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    @contextmanager
    def noticing_end(self, connection: socket.socket, on_end: Callable[[], None]) -> Iterator[None]:
        """Call ``on_end``, once and in another thread, when the client of the connection has left."""
        with self._lock:
            self._streaming.register(connection, selectors.EVENT_READ, on_end)
        try:
            yield
        finally:
            with self._lock:
                # It is not there any more if the client left or has sent something.
                if connection in self._streaming.get_map():
                    self._streaming.unregister(connection)

    def service_actions(self) -> None:
        """Look for clients that have left; socketserver calls it between two accepts, 50 times a second."""
        with self._lock:
            # Not readable: the client is there and waits, as it should.
            readable = [key for key, _ in self._streaming.select(0)]
            for key in readable:
                self._streaming.unregister(key.fileobj)
        for key in readable:
            if _has_left(key.fileobj):
                key.data()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Note an exception of a handler, unless the connection was closed or cut."""
        del request
        error = sys.exception()
        if isinstance(error, Exception) and not isinstance(error, unforeseen.CLIENT_GONE):
            unforeseen.note(f"a connection of the API server with {client_address}", error)

    def end(self) -> None:
        """Stop accepting, and cut every connection."""
        self.shutdown()
        self.server_close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            try:
                # Unlike close, shutdown wakes a thread that is blocked in a read of the socket.
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # the client has closed it already


class Stream:
    """An answer that goes on until it is complete, the client leaves or the server stops."""

    def __init__(self, api: ServedApi, listener: Listener, connection: socket.socket, sink: BufferedIOBase):
        self._api = api
        self._listener = listener
        self._connection = connection
        self._sink = sink
        self._left = False

    @property
    def ended(self) -> bool:
        """Whether there is nobody to write to, or the server stops."""
        return self._left or not self._api.serves(self._listener)

    @contextmanager
    def woken(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call ``wake`` when ``ended`` has become true because the client left."""

        def on_end() -> None:
            self._left = True
            wake()

        with self._listener.noticing_end(self._connection, on_end):
            yield

    def write(self, data: bytes) -> None:
        """Send these bytes at once. Raises one of ``CLIENT_GONE`` where the client has left."""
        self._sink.write(data)
        self._sink.flush()


def _has_left(connection: Any) -> bool:
    """Whether a connection that is readable was ended by the client."""
    try:
        # Of TLS, too, the bytes as they come: what a client sends while it waits is that it closes.
        data = socket.socket.recv(connection, 1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return not data or isinstance(connection, ssl.SSLSocket)
