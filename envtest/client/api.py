"""A small client of the Kubernetes API for tests: JSON objects as plain dicts, by their paths."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

from envtest.client.errors import ApiRefused, ApiUnreachable, ClusterError

Object = dict[str, Any]

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
FIELD_MANAGER = "envtest"
REQUEST_SECONDS = 30.0


class ApiClient:
    """Talks to one API server as one user. May be used from several threads.

    Every method raises ``ApiRefused`` for an answer that is an error, and ``ApiUnreachable`` when
    there is none.
    """

    def __init__(self, server: str, authority: Path | None, token: str) -> None:
        """Args: the server's URL, the certificate file to trust (None for http), the bearer token to show."""
        self._address = urlsplit(server).netloc
        self._token = token
        self._tls = None if authority is None else ssl.create_default_context(cafile=str(authority))
        self._resources: dict[str, dict[str, Object]] = {}

    def get(self, path: str) -> Object:
        """The object at a path."""
        return self.request("GET", path)

    def find(self, path: str) -> Object | None:
        """The object at a path, None if there is none."""
        try:
            return self.get(path)
        except ApiRefused as error:
            if error.status == http.client.NOT_FOUND:
                return None
            raise

    def list_objects(self, path: str, **query: str) -> list[Object]:
        """The objects of a collection; ``query`` such as labelSelector="app=x" narrows it."""
        return list(self.request("GET", path, query=query)["items"])

    def create(self, obj: Object, namespace: str = "default") -> Object:
        """Create an object; ``namespace`` is for an object that names none. Returns it as stored."""
        return self.request("POST", self.collection_of(obj, namespace), obj)

    def apply(self, source: Path | Object | Iterable[Object], namespace: str = "default") -> list[Object]:
        """Server-side apply a YAML file, an object or objects, in their order. Returns them as stored."""
        # force takes over fields that another manager owns; without it the server answers 409.
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return [
            self.request("PATCH", self.path_of(obj, namespace), obj, content_type=APPLY, query=query)
            for obj in objects_in(source)
        ]

    def replace(self, path: str, obj: Object) -> Object:
        """Update (PUT) the object at a path. Returns it as stored."""
        return self.request("PUT", path, obj)

    def patch(self, path: str, body: Object) -> Object:
        """Merge-patch the object at a path. Returns it as stored."""
        return self.request("PATCH", path, body, content_type=MERGE)

    def delete(self, path: str, grace_seconds: int | None = None) -> None:
        """Delete the object at a path, if it is still there."""
        options = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        try:
            self.request("DELETE", path, options)
        except ApiRefused as error:
            if error.status != http.client.NOT_FOUND:
                raise

    def text(self, path: str, timeout_seconds: float = REQUEST_SECONDS) -> str:
        """The body of an answer that is not JSON, such as a pod's log."""
        with self.stream("GET", path, timeout_seconds=timeout_seconds) as answer:
            return answer.read().decode(errors="replace")

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Object:
        """Send a request and return the object in the answer; ``headers`` are added to the usual ones."""
        with self.stream(
            method, path, body, content_type=content_type, query=query, headers=headers
        ) as answer:
            try:
                return dict(json.load(answer))
            except (OSError, http.client.HTTPException, ValueError) as error:
                # The server ended in the middle of its answer.
                what = f"{method} {path} at {self._address}"
                raise ApiUnreachable(what, 0, type(error).__name__, str(error)) from error

    def stream(
        self,
        method: str,
        path: str,
        body: Object | bytes | None = None,
        *,
        content_type: str = "application/json",
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        timeout_seconds: float = REQUEST_SECONDS,
    ) -> http.client.HTTPResponse:
        """Send a request and return the answer to read from; close it. Bytes are sent as they are.

        ``timeout_seconds`` is how long the server may stay silent.
        """
        address = f"{path}?{urlencode(query)}" if query else path
        sent = {
            "Accept": "application/json",
            "Authorization": f"Bearer {self._token}",
            # A connection for each request: no pool has to be kept, and threads need no lock.
            "Connection": "close",
            "Content-Type": content_type,
            **(headers or {}),
        }
        connection = self._connection(timeout_seconds)
        # JSON is YAML, so an apply patch may be sent as JSON, too.
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        try:
            connection.request(method, address, data, sent)
            answer = connection.getresponse()
            # The answer has a file object of its own on the socket, and the descriptor is closed with the
            # last of the two. http.client has let go of the socket already where the server closes the
            # connection.
            if connection.sock is not None:
                connection.sock.close()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            what = f"{method} {path} at {self._address}"
            raise ApiUnreachable(what, 0, type(error).__name__, str(error)) from error
        if answer.status >= http.client.BAD_REQUEST:
            with answer:
                raise _refusal(f"{method} {path}", answer.status, answer.read())
        return answer

    def _connection(self, timeout_seconds: float) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._address, timeout=timeout_seconds)
        return http.client.HTTPSConnection(self._address, context=self._tls, timeout=timeout_seconds)

    def collection_of(self, obj: Object, namespace: str = "default") -> str:
        """The path of the collection that an object belongs to, as the server publishes it.

        Raises:
            ClusterError: the server knows no such kind.
        """
        version, kind = obj["apiVersion"], obj["kind"]
        # The core group alone is below /api, all others are below /apis.
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        known = self._resources.get(root)
        if known is None:
            listed = self.get(root)["resources"]
            # Subresources are in the same list, with a slash in their names (pods/status).
            known = {entry["kind"]: entry for entry in listed if "/" not in entry["name"]}
            self._resources[root] = known
        if kind not in known:
            raise ClusterError(f"the API server has no {kind} in {version}")
        if not known[kind]["namespaced"]:
            return f"{root}/{known[kind]['name']}"
        namespace = obj["metadata"].get("namespace", namespace)
        return f"{root}/namespaces/{namespace}/{known[kind]['name']}"

    def path_of(self, obj: Object, namespace: str = "default") -> str:
        """The path of an object that has a name."""
        return f"{self.collection_of(obj, namespace)}/{obj['metadata']['name']}"


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader in C is ten times as fast; PyYAML may have been built without it."""


def objects_in(source: Path | Object | Iterable[Object]) -> Iterator[Object]:
    """The objects of a YAML file with one or more documents, of one dict, or of several."""
    if isinstance(source, Path):
        yield from filter(None, yaml.load_all(source.read_text(), _LOADER))
    elif isinstance(source, dict):
        yield source
    else:
        yield from source


def _refusal(what: str, status: int, body: bytes) -> ApiRefused:
    """The error for an answer that is one; its body is a Status object, or text of a proxy."""
    try:
        answer = json.loads(body)
        return ApiRefused(what, status, answer.get("reason", ""), answer.get("message", ""))
    except (ValueError, AttributeError):
        return ApiRefused(what, status, "", body.decode(errors="replace"))
