"""How to reach the API server from plain sources: a pod's service account, or an ordinary kubeconfig.

Ordinary is a token or a client certificate, which is all that a service in a cluster needs, and most people.
The ``kubernetes`` package, which knows exec plugins, auth providers, proxies and the rest
(``driver.kube.full_access``), takes 16 MiB and a third of a second to import; so it is left to the
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
"""Connections kept alive: sixteen parallel requests, the watches and the events."""

_KEEP_ALIVE = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
]


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API server is, the connections to it, and the Authorization header, read at each call.

    ``authorization`` gives None where nothing or a client certificate is presented; it raises OSError
    or ValueError when the source of a token went away. ``authority`` is None where no file says whose
    server certificates are good.
    """

    server: str
    transport: urllib3.PoolManager
    authorization: Callable[[], str | None]
    authority: Authority | None = None


def access_of_pod(folder: Path = SERVICE_ACCOUNT) -> Access | None:
    """The access of the pod's service account; None outside of a pod, or behind a proxy.

    Raises ConfigError when the service account's files cannot be used.
    """
    return _connected(endpoint_of_pod(folder))


def access_of_kubeconfig(content: Any) -> Access | None:
    """The access of a kubeconfig's current context when it is plain; None when it needs more.

    Paths in the content start at the root. Raises OSError or ValueError when a file or a value cannot be
    used.
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
        # What the kubeconfig asked for need not be warned of with every request.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    pool = urllib3.PoolManager(num_pools=4, maxsize=CONNECTIONS, socket_options=_KEEP_ALIVE, **tls)
    return bounded(pool)
