"""Sends requests to the Kubernetes API. Objects are plain dicts, errors are those of driver.kube.errors.

It knows verbs and paths, but no kinds. So a field that a newer server adds survives a read-modify-write.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlencode

import urllib3

from driver.errors import ConfigError
from driver.kube.access import Kubeconfig
from driver.kube.bounded import Answer, DirectPool, direct_pool
from driver.kube.credentials import Credentials
from driver.kube.decode import decode_json
from driver.kube.errors import Unauthorized, Unreachable, error_of_response
from driver.kube.paths import resource_of
from driver.kube.watch import WatchStream

Response = TypeVar("Response", Answer, urllib3.BaseHTTPResponse)

Object = dict[str, Any]
"""A Kubernetes object, a list or a Status as decoded from JSON."""

RequestHook = Callable[[str, str, str, float], None]
"""Is called with each finished request: verb, resource, outcome and seconds.

A watch counts as finished once it has begun; its verb is WATCH. The outcome is the class of the status, such
as 2xx, or ``unreachable``.
"""

PatchType = Literal[
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
]

_JSON = "application/json"
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

DEFAULT_TIMEOUT_SECONDS = 10.0
PATIENT_SECONDS = 30.0
"""The time for a request that nobody waits for.

An overloaded API server lets a request wait for a quarter of a minute before it refuses it
(``getRequestWaitContext`` in apiserver/pkg/server/filters/priority-and-fairness.go). Whoever gives up earlier
and asks again makes it work for nothing, and so adds to the load.
"""
_CONNECT_TIMEOUT_SECONDS = 10.0


def _no_hook(_verb: str, _resource: str, _outcome: str, _seconds: float) -> None:
    """Do nothing."""


# Made once, since urllib3 would make such an object for each request from a plain False.
_NO_RETRIES = urllib3.Retry(total=False)


class KubeClient:
    """A connection to one API server. Thread-safe; connections are kept alive and shared.

    Every request raises the errors of ``driver.kube.errors``. ``timeout_seconds`` covers the whole request,
    however slowly the answer arrives. Nothing is retried, except that a GET is sent once more within that
    time if an idle connection turns out to be closed.
    """

    def __init__(
        self,
        credentials: Credentials,
        user_agent: str,
        on_request: RequestHook = _no_hook,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._credentials = credentials
        self._user_agent = user_agent
        self._on_request = on_request
        self._date: tuple[str, float] | None = None
        # The transport, its connections that need no urllib3 for a request, and the path of the server's URL.
        self._direct: tuple[urllib3.PoolManager | None, DirectPool | None, str] = None, None, ""
        self._lock = threading.Lock()
        self._streams: set[WatchStream] = set()
        self._closed = False

    @classmethod
    def connect(
        cls,
        kubeconfig: Path | Kubeconfig | None,
        *,
        user_agent: str = "gpu-dra",
        on_request: RequestHook = _no_hook,
    ) -> Self:
        """A client for the kubeconfig's current context, or for the pod's service account if it is None.

        Raises ConfigError. No request is sent yet.
        """
        return cls(Credentials(kubeconfig), user_agent, on_request)

    def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        accept: str = _JSON,
    ) -> Object:
        """The object, or the list, at ``path``."""
        until = self._clock() + timeout_seconds
        try:
            return self._request("GET", path, params, timeout_seconds=timeout_seconds, accept=accept)
        # The server may close an idle connection just as the request is sent. A GET can be sent again safely,
        # other verbs might have been carried out.
        except _ConnectionWasClosed:
            left_seconds = until - self._clock()
            if left_seconds <= 0:
                raise
            return self._request("GET", path, params, timeout_seconds=left_seconds, accept=accept)

    def get_metadata(self, path: str) -> Object:
        """Only the metadata of the object at ``path``, as PartialObjectMetadata of meta.k8s.io/v1."""
        return self.get(path, accept=_METADATA_ONLY)

    def text(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> str:
        """The content of ``path`` as text, for example the log of a container, or metrics."""
        headers = {"Accept": "application/json, */*"}
        answer = self._exchange("GET", path, params, None, headers, timeout_seconds)
        return answer.data.decode(errors="replace")

    def create(
        self,
        path: str,
        body: Object,
        params: Mapping[str, str] | None = None,
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> Object:
        """Create ``body`` in the collection at ``path``, and return the object as it is stored.

        With ``dryRun`` in ``params`` nothing is stored.
        """
        return self._request("POST", path, params, body, timeout_seconds=timeout_seconds)

    def replace(self, path: str, body: Object, *, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> Object:
        """Replace the object; raises Conflict if it was changed since ``body`` was read."""
        return self._request("PUT", path, None, body, timeout_seconds=timeout_seconds)

    def patch(
        self,
        path: str,
        body: Object | list[Object],
        patch_type: PatchType,
        params: Mapping[str, str] | None = None,
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> Object:
        """Patch the object; a JSON patch is a list, the other kinds are mappings.

        An apply patch needs ``fieldManager`` in ``params``, and ``force`` to take over fields of others.
        """
        return self._request(
            "PATCH", path, params, body, content_type=patch_type, timeout_seconds=timeout_seconds
        )

    def delete(
        self,
        path: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> None:
        """Delete the object; raises Conflict if it has another UID or resourceVersion than given."""
        # Without them a delete by name would also hit an object that was made again under that name.
        preconditions = {
            name: value
            for name, value in (("uid", uid), ("resourceVersion", resource_version))
            if value is not None
        }
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            options["preconditions"] = preconditions
        self._request("DELETE", path, None, options, timeout_seconds=timeout_seconds)

    def watch(self, path: str, params: Mapping[str, str], *, idle_seconds: float) -> WatchStream:
        """Watch the collection. The stream raises an error after ``idle_seconds`` without a byte.

        ``params``: selectors, resourceVersion, allowWatchBookmarks, timeoutSeconds.
        """
        url = self._url(path, {**params, "watch": "true"})
        timeout = urllib3.Timeout(connect=_CONNECT_TIMEOUT_SECONDS, read=PATIENT_SECONDS)
        headers: dict[str, str] = {}

        def send() -> urllib3.BaseHTTPResponse:
            return self._urlopen("GET", url, None, headers, timeout, preload=False)

        response = self._send("GET", "WATCH", url, headers, send)
        stream = WatchStream(response, f"WATCH {path}", idle_seconds, self._forget)
        with self._lock:
            self._streams.add(stream)
            # Read under the lock: either close() finds this stream in the set, or it is closed here.
            closed = self._closed
        if closed:
            stream.close()
        return stream

    def server_time(self) -> datetime:
        """The time of the API server's clock, from its last answer; before that, this machine's time."""
        if self._date is not None:
            date, at = self._date
            with suppress(ValueError):
                # Times in objects are the server's, and this machine's clock may be wrong. Advance the
                # server's time by the monotonic clock, which nobody sets.
                return parsedate_to_datetime(date) + timedelta(seconds=self._clock() - at)
        return datetime.now(UTC)

    def close(self) -> None:
        """End all watches at once, also those that begin later. Other requests run to their end."""
        with self._lock:
            self._closed = True
            streams = list(self._streams)
        for stream in streams:
            stream.close()
        self._direct = None, None, ""
        # Closes idle connections, those in use when their answer is read.
        self._credentials.transport.clear()

    def _forget(self, stream: WatchStream) -> None:
        with self._lock:
            self._streams.discard(stream)

    def _request(
        self,
        verb: str,
        path: str,
        params: Mapping[str, str] | None,
        body: Object | list[Object] | None = None,
        *,
        timeout_seconds: float,
        content_type: str = _JSON,
        accept: str = _JSON,
    ) -> Object:
        headers = {"Accept": accept, **({} if body is None else {"Content-Type": content_type})}
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        answered = self._exchange(verb, path, params, data, headers, timeout_seconds)
        try:
            answer = decode_json(answered.data)
        except ValueError as error:
            raise Unreachable(
                # Not JSON: a proxy or another server answered, and the next try may reach the right one.
                f"the answer to {verb} {path} is not JSON",
                "check that the server of the kubeconfig is a Kubernetes API server",
            ) from error
        return answer if isinstance(answer, dict) else {}

    def _exchange(
        self,
        verb: str,
        path: str,
        params: Mapping[str, str] | None,
        data: bytes | None,
        headers: dict[str, str],
        timeout_seconds: float,
    ) -> Answer:
        """The whole answer if its status is 2xx; raises otherwise."""
        url = self._url(path, params)

        def send() -> Answer:
            transport = self._credentials.transport
            if transport is not self._direct[0]:
                self._direct = transport, *direct_pool(transport, self._credentials.server)
            _, pool, prefix = self._direct
            if pool is not None:
                target = prefix + url.removeprefix(self._credentials.server)
                return pool.exchange(verb, target, headers, data, timeout_seconds)
            timeout = urllib3.Timeout(total=timeout_seconds)
            response = self._urlopen(verb, url, data, headers, timeout, preload=True)
            return Answer(response.status, response.headers, response.data)

        return self._send(verb, verb, url, headers, send)

    def _url(self, path: str, params: Mapping[str, str] | None) -> str:
        server = self._credentials.server
        return f"{server}{path}?{urlencode(params)}" if params else f"{server}{path}"

    def _urlopen(
        self,
        verb: str,
        url: str,
        data: bytes | None,
        headers: Mapping[str, str],
        timeout: urllib3.Timeout,
        *,
        preload: bool,
    ) -> urllib3.BaseHTTPResponse:
        # No redirects: one could carry the token to another server.
        return self._credentials.transport.urlopen(
            verb,
            url,
            body=data,
            headers=headers,
            timeout=timeout,
            retries=_NO_RETRIES,
            redirect=False,
            preload_content=preload,
        )

    def _send(
        self, verb: str, kind: str, url: str, headers: dict[str, str], send: Callable[[], Response]
    ) -> Response:
        """What ``send()`` returns if its status is 2xx; raises otherwise. ``kind`` is the verb for the hook.

        Headers that all requests have are added to ``headers``, which ``send`` sends.
        """
        headers["User-Agent"] = self._user_agent
        headers.setdefault("Accept", _JSON)
        # For each request, since the token may have been replaced.
        authorization = self._authorization()
        if authorization is not None:
            headers["Authorization"] = authorization
        started = self._clock()
        outcome = "unreachable"
        try:
            response = send()
            outcome = f"{response.status // 100}xx"
            if date := response.headers.get("date"):
                self._date = date, self._clock()
        except urllib3.exceptions.ProtocolError as error:
            # urllib3 raises ProtocolError for a connection that ended before the answer.
            closed = _ConnectionWasClosed if kind == "GET" else Unreachable
            raise closed(*_no_answer(verb, url, error)) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(*_no_answer(verb, url, error)) from error
        finally:
            self._on_request(kind, resource_of(url), outcome, self._clock() - started)
        if 200 <= response.status < 300:
            return response
        failure = error_of_response(
            f"{verb} {url}", response.status, response.data, response.headers.get("retry-after")
        )
        # Renew for the next request. This one is not repeated, since the caller decides about that.
        if isinstance(failure, Unauthorized):
            self._renew(failure)
        raise failure

    def _authorization(self) -> str | None:
        try:
            return self._credentials.authorization()
        except ConfigError as error:
            raise Unauthorized(error.what, error.way_out) from error

    def _renew(self, refused: Unauthorized) -> None:
        try:
            self._credentials.renew()
        except ConfigError as error:
            raise Unauthorized(f"{refused.what}; {error.what}", error.way_out) from error


class _ConnectionWasClosed(Unreachable):
    """The connection was closed before an answer came. Perhaps the server just ended an idle connection."""


def _no_answer(verb: str, url: str, error: Exception) -> tuple[str, str]:
    """The error's two texts for a request without an answer."""
    return f"no answer to {verb} {url}, {error}", "check that the API server runs and can be reached"
