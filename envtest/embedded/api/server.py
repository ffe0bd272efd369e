"""The API server on loopback: starts, stops and restarts on its port, and knows what it was asked."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import deque
from socketserver import ThreadingTCPServer
from typing import TYPE_CHECKING, Any, Self

from envtest.embedded.api.faults import Fault, Faults
from envtest.embedded.api.http import Handler
from envtest.embedded.api.requests import parse_request
from envtest.embedded.api.store import Store
from envtest.embedded.api.verbs import Verbs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from envtest.embedded.api.requests import Request

Object = dict[str, Any]

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
"""The namespaces that every cluster has."""

_KEPT_REQUESTS = 10_000
_LOOK_SECONDS = 0.05


class _Listener(ThreadingTCPServer):
    """One bound port; remembers its connections so that they end when it does."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, port: int, api: EmbeddedApiServer) -> None:
        self.api = api
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or a connection cut on purpose, is no error here."""

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


class EmbeddedApiServer:
    """A stateful API server; use it as a context manager, or call ``start`` and ``stop``.

    ``faults`` makes requests fail. ``verbs`` has the switches of an older server. The objects stay
    when it is stopped, as etcd would keep them. Each watch sends a bookmark when ``bookmarks_due``
    rises, and ends when ``watch_generation`` does; ``watches`` counts them. Where ``accepted_bearer`` is
    set, requests that bear another token are answered 401.
    """

    def __init__(self) -> None:
        self.store = Store()
        self.verbs = Verbs(self.store)
        self.faults = Faults()
        self.bookmark_seconds = 60.0
        self.accepted_bearer: str | None = None
        self.requests: deque[Request] = deque(maxlen=_KEPT_REQUESTS)
        self.bookmarks_due = 0
        self.watch_generation = 0
        self.watches = 0
        self._looking = 0
        self._listener: _Listener | None = None
        self._port = 0
        for name in NAMESPACES:
            item = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}
            self.create("/api/v1/namespaces", item)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it listens; stays the same when it is stopped and started again."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def address(self) -> str:
        """``host:port`` of ``url``."""
        return self.url.removeprefix("http://")

    @property
    def running(self) -> bool:
        """Whether it accepts connections."""
        return self._listener is not None

    def serves(self, listener: object) -> bool:
        """Whether ``listener`` is the one that runs: those of an earlier start have to end."""
        return self._listener is listener

    def start(self) -> None:
        """Listen, at first on a free port, later on the same."""
        listener = _Listener(self._port, self)
        self._port = listener.server_address[1]
        self._listener = listener
        threading.Thread(
            target=listener.serve_forever, kwargs={"poll_interval": 0.02}, name="embedded-api", daemon=True
        ).start()

    def stop(self) -> None:
        """Cut all connections and refuse new ones; the objects stay."""
        listener, self._listener = self._listener, None
        self.store.notify()
        self.faults.clear()
        if listener is not None:
            listener.end()

    def restart(self) -> None:
        """Stop and start on the same port."""
        self.stop()
        self.start()

    def compact(self) -> None:
        """Forget the history: resourceVersions from before are answered 410 Gone."""
        self.store.compact()

    def send_bookmarks(self) -> None:
        """Send a bookmark on each watch that allows them."""
        with self.store.changed:
            self.bookmarks_due += 1
            self.store.changed.notify_all()

    def end_watches(self) -> None:
        """End all watches in good order, as a server does that is about to restart."""
        with self.store.changed:
            self.watch_generation += 1
            self.store.changed.notify_all()

    def count(self, verb: str, resource: str) -> int:
        """How many requests with this verb came for this resource so far."""
        return sum(
            1 for request in list(self.requests) if (request.verb, request.resource) == (verb, resource)
        )

    def objects(self, resource: str, group: str = "") -> list[Object]:
        """All objects of a resource as they are stored."""
        return [item for _, item in self.store.items((group, resource))]

    def create(self, path: str, item: Object) -> Object:
        """Create an object in the collection at ``path`` without a connection."""
        request = parse_request("POST", path)
        assert request is not None
        return self.verbs.create(request, item)

    def replace(self, path: str, item: Object) -> Object:
        """Replace the object at ``path`` without a connection."""
        request = parse_request("PUT", path)
        assert request is not None
        return self.verbs.update(request, item)

    def delete(self, path: str) -> None:
        """Delete the object, or the whole collection, at ``path`` without a connection."""
        request = parse_request("DELETE", path)
        assert request is not None
        if request.verb == "delete":
            self.verbs.delete(request, {})
        else:
            self.verbs.deletecollection(request)

    def fail(self, verb: str, path: str, **how: Any) -> Fault:
        """Let the next requests fail; ``how`` are the fields of Fault."""
        return self.faults.add(Fault(verb, path, **how))

    def wait_until(self, condition: Callable[[], bool], timeout_seconds: float = 10.0) -> bool:
        """Wait until ``condition`` holds; whether it came true.

        It is looked at after every request and change, and twenty times a second for the sake of what
        a client does with them.
        """
        deadline = time.monotonic() + timeout_seconds
        with self.store.changed:
            self._looking += 1
            try:
                while not condition():
                    if time.monotonic() >= deadline:
                        return False
                    self.store.changed.wait(_LOOK_SECONDS)
            finally:
                self._looking -= 1
        return True

    def watch_began(self) -> None:
        """Count a watch from whose beginning no change is missed any more."""
        with self.store.changed:
            self.watches += 1
            self.store.changed.notify_all()

    def heard(self, request: Request) -> None:
        """Remember a request."""
        self.requests.append(request)
        if self._looking:
            self.store.notify()

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this server; the answer is ``path``."""
        cluster = {"name": "embedded", "cluster": {"server": self.url}}
        context = {"name": "embedded", "context": {"cluster": "embedded", "user": "embedded"}}
        user = {"name": "embedded", "user": {"token": "embedded"}}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "embedded",
            "clusters": [cluster],
            "contexts": [context],
            "users": [user],
        }
        path.write_text(json.dumps(config))
        return path
