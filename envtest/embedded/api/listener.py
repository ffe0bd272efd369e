"""Listens for the API server: accepts connections on loopback, and cuts all of them when it ends."""

from __future__ import annotations

import socket
import sys
import threading
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

from envtest.embedded.api import unforeseen


class Listener(ThreadingTCPServer):
    """One bound port; remembers its connections so that they end when it does."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, handler: type[BaseRequestHandler], api: object) -> None:
        """Bind the port on an address of loopback; ``handler`` finds ``api`` at its server."""
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.api = api
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        super().__init__((host, port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection, and answer it in a thread of its own."""
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection and close it."""
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Note what a handler raised; a client that went away, or a connection that was cut, is no error."""
        del request
        error = sys.exception()
        if isinstance(error, Exception) and not isinstance(error, ConnectionError):
            unforeseen.note(f"a connection of the API server with {client_address}", error)

    def end(self) -> None:
        """Stop accepting, and cut every connection."""
        self.shutdown()
        self.server_close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # the client has closed it already
