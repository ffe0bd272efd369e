"""How to reach the API server from plain sources: a pod's service account, or an ordinary kubeconfig.

An ordinary kubeconfig has a token or a client certificate. That is all that a service in a cluster needs, and
most people. The ``kubernetes`` package knows exec plugins, auth providers, proxies and the rest
(``driver.kube.full_access``), but takes 16 MiB and a third of a second to import. So it is used only for
kubeconfigs that need it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection

from driver.kube.bounded import bounded
from driver.kube.endpoint import (
    SERVICE_ACCOUNT,
    Authority,
    Endpoint,
    endpoint_of_kubeconfig,
    endpoint_of_pod,
)

CONNECTIONS = 32
"""Connections that are kept alive: for sixteen parallel requests, the watches and the events."""

# A dead peer is noticed after 30 + 4 x 15 seconds. Linux' own default is more than two hours (tcp(7)), and a
# watch sends nothing by itself.
_KEEP_ALIVE = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
]


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API server is, the connections to it, and the Authorization header for each request.

    ``authorization`` returns None if nothing or a client certificate is presented. It raises OSError or
    ValueError if the source of a token went away. ``authority`` is None if no file says whose server
    certificates are valid.
    """

    server: str
    transport: urllib3.PoolManager
    authorization: Callable[[], str | None]
    authority: Authority | None = None


def access_of_pod(folder: Path = SERVICE_ACCOUNT) -> Access | None:
    """The access of the pod's service account; None outside of a pod, or behind a proxy.

    Raises ConfigError if the service account's files cannot be used.
    """
    return _connected(endpoint_of_pod(folder))


def access_of_kubeconfig(content: Any) -> Access | None:
    """The access of a kubeconfig's current context if it is plain; None if it needs more.

    Paths in the content are absolute. Raises OSError or ValueError if a file or a value cannot be used.
    """
    return _connected(endpoint_of_kubeconfig(content))


def _connected(endpoint: Endpoint | None) -> Access | None:
    if endpoint is None:
        return None
    connections = _connections(endpoint.tls)
    return Access(endpoint.server, connections, endpoint.authorization, endpoint.authority)


def _connections(context: ssl.SSLContext | None) -> urllib3.PoolManager:
    tls: dict[str, Any] = {} if context is None else {"ssl_context": context}
    if context is not None and context.verify_mode == ssl.CERT_NONE:
        # The kubeconfig asked for it, so urllib3 need not warn at each request.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    pool = urllib3.PoolManager(num_pools=4, maxsize=CONNECTIONS, socket_options=_KEEP_ALIVE, **tls)
    return bounded(pool)
