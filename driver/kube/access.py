"""How to reach the API server: the connections to it, and the Authorization header for each request.

In a pod, the service account's token and the cluster's authority say that. Elsewhere a kubeconfig does
(``driver.kube.kubeconfig``).
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.connection import HTTPConnection

from driver.errors import ConfigError
from driver.kube.bounded import bounded

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

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
class Kubeconfig:
    """The files of a kubeconfig in their order. ``context`` is the chosen one, None for the current one."""

    files: tuple[Path, ...]
    context: str | None = None

    def __str__(self) -> str:
        return os.pathsep.join(map(str, self.files))


@dataclass(frozen=True, slots=True)
class Authority:
    """The file with the certificates of the cluster's authority, and its content when it was read."""

    path: Path
    content: bytes

    @classmethod
    def read(cls, path: Path) -> Authority:
        """Read the file; raises OSError. Call it before the connections do, so that no change is missed."""
        return cls(path, path.read_bytes())

    def is_current(self) -> bool:
        """Whether the file still has that content. A file that cannot be read counts as unchanged."""
        try:
            return self.path.read_bytes() == self.content
        except OSError:
            return True


@dataclass(frozen=True, slots=True)
class Access:
    """The server's URL without a slash at its end, the connections to it, and the Authorization header.

    ``authorization`` returns None if nothing or a client certificate is presented. It raises OSError or
    ValueError if the source of a token went away. ``authority`` is None if no file says whose server
    certificates are valid.
    """

    server: str
    transport: urllib3.PoolManager
    authorization: Callable[[], str | None]
    authority: Authority | None = None


def access_of_pod(folder: Path) -> Access:
    """The access of the pod's service account, whose files are in ``folder``; raises ConfigError."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    # The kubelet sets both in every container.
    if not host or not port:
        raise ConfigError(
            "there is no kubeconfig, and this is not a pod",
            "name one with --kubeconfig; gpuctl also takes $KUBECONFIG and ~/.kube/config",
        )
    # KUBERNETES_SERVICE_HOST has no brackets around an IPv6 address, a URL needs them.
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    token = folder / "token"
    try:
        authority = Authority.read(folder / "ca.crt")
        transport = connections(server, ssl.create_default_context(cafile=str(authority.path)))
        # Read once to find out now whether it can be read. It is read again, since the kubelet replaces it.
        token.read_text()
    except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:
        raise ConfigError(
            f"cannot use the pod's service account in {folder}: {error}",
            "outside a cluster pass --kubeconfig FILE; in a pod set automountServiceAccountToken: true",
        ) from error
    return Access(server, transport, lambda: f"Bearer {token.read_text().strip()}", authority)


def connections(
    server: str, tls: ssl.SSLContext | None, proxy: str = "", server_name: str | None = None
) -> urllib3.PoolManager:
    """The connections to the server, through ``proxy``, or the one that the environment names for the server.

    ``tls`` is None for http; ``server_name`` is the name in the server's certificate if it is not its host.
    Raises HTTPError of urllib3 for a proxy that cannot be used.
    """
    # Which servers have a proxy is decided by the rules of the standard library: no networks in NO_PROXY.
    url = urlsplit(server)
    if not proxy and not proxy_bypass(url.netloc):
        proxy = getproxies().get(url.scheme, "")
    settings: dict[str, Any] = {} if tls is None else {"ssl_context": tls}
    if server_name:
        settings |= {"server_hostname": server_name}
    settings |= {"num_pools": 4, "maxsize": CONNECTIONS, "socket_options": _KEEP_ALIVE}
    return bounded(urllib3.ProxyManager(proxy, **settings) if proxy else urllib3.PoolManager(**settings))
