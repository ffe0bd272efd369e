"""The API server on loopback: starts and stops on its port, and takes objects without a connection."""

from __future__ import annotations

import base64
import json
import threading
from functools import partial
from pathlib import Path
from typing import Any, Self

from envtest.embedded.access.gate import Gate
from envtest.embedded.access.rights import check_claim_rights, reviews
from envtest.embedded.api.container_log import ContainerLog
from envtest.embedded.api.faults import ALWAYS, Fault
from envtest.embedded.api.http import Handler
from envtest.embedded.api.requests import User, parse_request
from envtest.embedded.api.resources import RESOURCES
from envtest.embedded.api.served import Listener, ServedApi, ServerTls
from envtest.embedded.api.statuses import Refused
from envtest.embedded.api.unforeseen import Noted, Unforeseen
from envtest.embedded.api.verbs import resource_of

__all__ = [
    "ALWAYS",
    "RESOURCES",
    "ContainerLog",
    "EmbeddedApiServer",
    "Fault",
    "Noted",
    "Refused",
    "Unforeseen",
    "User",
]

Object = dict[str, Any]

# kube-apiserver makes them itself at its start.
_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
"""The namespaces that every cluster has."""


class EmbeddedApiServer(ServedApi):
    """A stateful API server; use it as a context manager, or call ``start`` and ``stop``.

    The objects stay when it is stopped, as etcd would keep them. ``gate`` knows its users.
    """

    def __init__(self, *, tls: ServerTls | None = None) -> None:
        """Begin with the namespaces that every cluster has. With ``tls`` it speaks HTTPS."""
        super().__init__(tls)
        self.gate = Gate(self.store)
        self.admit_client = self.gate.admit
        self.verbs.answers = reviews(self.gate)
        self.verbs.check_claim_rights = partial(check_claim_rights, self.gate)
        for name in _NAMESPACES:
            item = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}
            self.create("/api/v1/namespaces", item)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen, at first on a free port, later on the same."""
        listener = Listener(self.host, self._port, Handler, self, self.tls)
        self._port = listener.server_address[1]
        self._listener = listener
        # poll_interval is how long ``shutdown`` may have to wait; connections are accepted at once.
        threading.Thread(
            target=listener.serve_forever, kwargs={"poll_interval": 0.02}, name="embedded-api", daemon=True
        ).start()

    def stop(self) -> None:
        """Cut all connections and refuse new ones; the objects stay."""
        # First of all: watches and loops look at it when they are woken.
        listener, self._listener = self._listener, None
        self.store.notify()
        # Requests that hang on a fault would keep their threads.
        self.faults.clear()
        if listener is not None:
            listener.end()

    def restart(self) -> None:
        """Stop and start on the same port."""
        self.stop()
        self.start()

    def compact(self) -> None:
        """Answer resourceVersions from before with 410 Gone; watches that run go on."""
        self.store.compact()

    def send_bookmarks(self) -> None:
        """Send a bookmark on each watch that allows them."""
        with self.store.changed:
            self.bookmarks_due += 1
            self.store.notify()

    def end_watches(self) -> None:
        """End all watches without an error, as a server that is shutting down does."""
        with self.store.changed:
            self.watch_generation += 1
            self.store.notify()

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
        return self.verbs.create(request, resource_of(request), item, [])

    def replace(self, path: str, item: Object) -> Object:
        """Replace the object at ``path`` without a connection."""
        request = parse_request("PUT", path)
        assert request is not None
        return self.verbs.update(request, resource_of(request), item, [])

    def delete(self, path: str) -> None:
        """Delete the object, or the whole collection, at ``path`` without a connection."""
        request = parse_request("DELETE", path)
        assert request is not None
        if request.verb == "delete":
            self.verbs.delete(request, resource_of(request), None, [])
        else:
            self.verbs.deletecollection(request, resource_of(request), None, [])

    def fail(self, verb: str, path: str, **how: Any) -> Fault:
        """Let the next requests fail; ``how`` are the fields of Fault."""
        return self.faults.add(Fault(verb, path, **how))

    def write_kubeconfig(self, path: Path, token: str = "") -> Path:
        """Write a kubeconfig with a token, by default the administrator's; returns ``path``.

        Only its owner can read it.
        """
        cluster = {"server": self.url}
        if self.tls is not None:
            authority = base64.b64encode(self.tls.authority.encode()).decode()
            cluster["certificate-authority-data"] = authority
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "embedded",
            "clusters": [{"name": "embedded", "cluster": cluster}],
            "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": "embedded"}}],
            "users": [{"name": "embedded", "user": {"token": token or self.gate.admin_bearer}}],
        }
        # Before the token is in it: write_text alone would make it readable for all.
        path.touch(mode=0o600)
        path.write_text(json.dumps(config))
        return path
