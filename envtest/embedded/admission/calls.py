"""Calls webhooks by HTTPS, and says in the words of kube-apiserver why a call failed.

Go: k8s.io/apiserver, pkg/util/webhook/client.go; k8s.io/kube-aggregator, pkg/apiserver/resolvers.go.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

import urllib3
from urllib3.exceptions import NewConnectionError

from envtest.embedded.api.store import Store

Object = dict[str, Any]
ResolveService = Callable[[str, str, int], tuple[str, int] | None]
"""Where to find a port of a Service: host and port, from its namespace, its name and the port; or None."""

_SERVICES = ("", "services")
_HTTPS_PORT = 443
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, */*"}
_FORBIDDEN, _INTERNAL = 403, 500
_MOST_SHOWN = 2048
_KEPT_CONNECTIONS = 8
_MOST_REQUESTS, _REDIRECTS = 11, (307, 308)
"""How often redirects are followed, and those that keep the method and the body."""
_MESSAGES = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the "
    "request",
}


class CallFailed(Exception):
    """A webhook could not be called, or answered with an error."""


class _Unreachable(Exception):
    """There is no address to call a webhook at."""


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """Where a webhook is called, the name that its certificate needs, and who may have signed that."""

    host: str
    port: int
    server_name: str
    bundle: str


class WebhookCalls:
    """Calls webhooks, and keeps connections to them. Thread-safe.

    Only addresses of loopback are called, and those that ``resolve_service`` gives for Services.
    """

    def __init__(self, store: Store, resolve_service: ResolveService | None) -> None:
        self._store = store
        self._resolve_service = resolve_service
        self._lock = threading.Lock()
        self._pools: dict[_Endpoint, urllib3.HTTPSConnectionPool] = {}

    def call(self, config: Object, body: Object, timeout_seconds: int) -> bytes:
        """The answer's body; ``config`` is a WebhookClientConfig. Raises CallFailed."""
        service = config.get("service")
        url = f"{_url_of(service) if service else config.get('url') or ''}?timeout={timeout_seconds}s"
        parts = urlsplit(url)
        try:
            host, port = self._address_of(service) if service else _address_of(parts)
            pool = self._pool(_Endpoint(host, port, parts.hostname or "", config.get("caBundle") or ""))
            answer = _posted(pool, url, json.dumps(body).encode(), timeout_seconds)
        except (_Unreachable, urllib3.exceptions.HTTPError, OSError) as error:
            raise CallFailed(f'Post "{url}": {_reason(error)}') from error
        if not 200 <= answer.status < 300:
            raise CallFailed(_answered(answer))
        if not answer.data:
            kind = answer.headers.get("Content-Type", "")
            text = f"0-length response with status code: {answer.status} and content type: {kind}"
            raise CallFailed(text)
        return answer.data

    def _address_of(self, service: Object) -> tuple[str, int]:
        namespace, name = service["namespace"], service["name"]
        if self._resolve_service is not None:
            found = self._resolve_service(namespace, name, service.get("port", _HTTPS_PORT))
            if found is not None:
                return found
        if self._store.get(_SERVICES, (namespace, name)) is None:
            raise _Unreachable(f'service "{name}" not found')
        raise _Unreachable(f'no endpoints available for service "{name}"')

    def _pool(self, endpoint: _Endpoint) -> urllib3.HTTPSConnectionPool:
        with self._lock:
            if endpoint not in self._pools:
                self._pools[endpoint] = urllib3.HTTPSConnectionPool(
                    endpoint.host,
                    endpoint.port,
                    ssl_context=_context(endpoint.bundle),
                    server_hostname=endpoint.server_name,
                    assert_hostname=endpoint.server_name,
                    maxsize=_KEPT_CONNECTIONS,
                )
            return self._pools[endpoint]


def _posted(
    pool: urllib3.HTTPSConnectionPool, url: str, body: bytes, timeout_seconds: int
) -> urllib3.BaseHTTPResponse:
    """The answer to a POST. As Go's client it follows redirects, here to the same host alone."""
    host = urlsplit(url).netloc
    for _ in range(_MOST_REQUESTS):
        parts = urlsplit(url)
        answer = pool.urlopen(
            "POST",
            # A path may begin with two slashes, as those of controller-runtime do.
            f"{parts.path or '/'}?{parts.query}",
            body=body,
            headers={**_HEADERS, "Host": host},
            timeout=urllib3.Timeout(total=timeout_seconds),
            retries=False,
            redirect=False,
        )
        url = urljoin(url, answer.headers.get("Location", ""))
        if answer.status not in _REDIRECTS or urlsplit(url).netloc != host:
            break
    return answer


def _context(bundle: str) -> ssl.SSLContext:
    """The context that trusts the certificates of a caBundle, or those of the system without one."""
    if not bundle:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in Go, the certificate of the server itself may be the bundle: it need not be one of an authority.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=base64.b64decode(bundle).decode())
    except (binascii.Error, ValueError, ssl.SSLError) as error:
        text = "unable to load root certificates: unable to parse bytes as PEM block"
        raise CallFailed(f"could not get REST client: {text}") from error
    return context


def _url_of(service: Object) -> str:
    host = f"{service['name']}.{service['namespace']}.svc"
    return f"https://{host}:{service.get('port', _HTTPS_PORT)}{service.get('path') or ''}"


def _address_of(parts: SplitResult) -> tuple[str, int]:
    host, port = parts.hostname or "", parts.port or _HTTPS_PORT
    if not _is_loopback(host):
        text = "the embedded cluster calls webhooks at addresses of loopback only, or through its resolver"
        raise _Unreachable(f"dial tcp {host}:{port}: {text}")
    return host, port


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _reason(error: Exception) -> str:
    """Why there is no answer, as Go says it where that is known."""
    causes: list[object] = [error]
    # urllib3 has the error of the connection as reason or first argument.
    for one in causes:
        inner = (getattr(one, "reason", None), getattr(one, "__context__", None), *getattr(one, "args", ()))
        causes += [cause for cause in inner if isinstance(cause, Exception) and cause not in causes]
    for one in causes:
        if isinstance(one, ConnectionRefusedError):
            connection = next(one.conn for one in causes if isinstance(one, NewConnectionError))
            host = f"[{connection.host}]" if ":" in connection.host else connection.host
            return f"dial tcp {host}:{connection.port}: connect: connection refused"
        if isinstance(one, ssl.SSLCertVerificationError):
            is_other = "mismatch" in one.verify_message or "not valid for" in one.verify_message
            what = one.verify_message if is_other else "certificate signed by unknown authority"
            return f"tls: failed to verify certificate: x509: {what}"
    if any(isinstance(one, (urllib3.exceptions.TimeoutError, TimeoutError)) for one in causes):
        return "context deadline exceeded"
    if any(isinstance(one, (urllib3.exceptions.ProtocolError, ConnectionError)) for one in causes):
        return "EOF"
    return str(error)


def _answered(answer: urllib3.BaseHTTPResponse) -> str:
    """The error for an answer that is no success (apimachinery: NewGenericServerResponse)."""
    try:
        status = json.loads(answer.data)
    except ValueError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status" and status.get("message"):
        return str(status["message"])
    text = "unknown"
    if answer.headers.get("Content-Type", "text/plain").startswith("text/"):
        text = answer.data[:_MOST_SHOWN].decode(errors="replace").strip() or text
    code = answer.status
    if code in _MESSAGES:
        return _MESSAGES[code]
    if code == _FORBIDDEN:
        return text
    if code >= _INTERNAL:
        return f"an error on the server ({json.dumps(text)}) has prevented the request from succeeding"
    return f"the server responded with the status code {code} but did not return more information"
