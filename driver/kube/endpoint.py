"""Where the API server is and how to authenticate there, with the standard library alone.

It reads plain sources: a pod's service account, and a kubeconfig with a token or a client certificate.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from driver.errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_CERTIFICATES = ({"client-certificate", "client-certificate-data"}, {"client-key", "client-key-data"})
_PLAIN_USER = {"token", "tokenFile"}.union(*_CERTIFICATES)
_PLAIN_CLUSTER = {
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
}

_DEFAULT_PORTS = {"http": 80, "https": 443}
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


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
class Endpoint:
    """The server's URL without a slash at its end, how to speak TLS with it, and the Authorization header.

    ``tls`` is None for http. ``authorization`` returns None if nothing or a client certificate is presented.
    It raises OSError or ValueError if the source of a token went away. ``authority`` is None if no file says
    whose server certificates are valid.
    """

    server: str
    tls: ssl.SSLContext | None
    authorization: Callable[[], str | None]
    authority: Authority | None


def endpoint_of_pod(folder: Path = SERVICE_ACCOUNT) -> Endpoint | None:
    """The endpoint of the pod's service account; None outside of a pod, or behind a proxy.

    Raises ConfigError if the service account's files cannot be used.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        return None
    # KUBERNETES_SERVICE_HOST has no brackets around an IPv6 address, a URL needs them.
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    try:
        if is_proxied(server, os.environ):
            return None
        authority = Authority.read(folder / "ca.crt")
        context = ssl.create_default_context(cafile=str(authority.path))
        # Read once to find out now whether it can be read. Each request reads it again, since the kubelet
        # replaces it.
        (folder / "token").read_text()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot use the pod's service account in {folder}: {error}",
            "outside a cluster pass --kubeconfig FILE; in a pod set automountServiceAccountToken: true",
        ) from error
    return Endpoint(server, context, lambda: _bearer((folder / "token").read_text()), authority)


def endpoint_of_kubeconfig(content: Any) -> Endpoint | None:
    """The endpoint of a kubeconfig's current context if it is plain; None if it needs more.

    Paths in the content are absolute. Raises OSError or ValueError if a file or a value cannot be used.
    """
    cluster, user = _current(content, "cluster"), _current(content, "user")
    server = str((cluster or {}).get("server", "")).rstrip("/")
    plain = server.startswith(("https://", "http://")) and not is_proxied(server, os.environ)
    if cluster is None or user is None or not plain:
        return None
    # Any other key, such as exec, auth-provider, proxy-url or tls-server-name, needs the kubernetes package.
    if cluster.keys() - _PLAIN_CLUSTER or user.keys() - _PLAIN_USER:
        return None
    certificate, key = (user.keys() & names for names in _CERTIFICATES)
    # Half a client certificate: let the kubernetes package say what is wrong with it.
    if bool(certificate) != bool(key):
        return None
    authority = _authority(cluster)
    tls = _context(cluster, user, authority) if server.startswith("https://") else None
    return Endpoint(server, tls, _authorization(user), authority)


def _authorization(user: Mapping[str, Any]) -> Callable[[], str | None]:
    token, token_file = user.get("token"), user.get("tokenFile")
    if token:
        return lambda: _bearer(str(token))
    if token_file:
        return lambda: _bearer(Path(token_file).read_text())
    return lambda: None


def _authority(cluster: Mapping[str, Any]) -> Authority | None:
    file = cluster.get("certificate-authority")
    # Data comes before the file, as in client-go. Data cannot change, so there is nothing to watch.
    if cluster.get("certificate-authority-data") or not file:
        return None
    return Authority.read(Path(file))


def _current(content: Any, kind: str) -> Mapping[str, Any] | None:
    """The cluster or the user of the current context; None if the kubeconfig has another form."""
    try:
        contexts = {entry["name"]: entry["context"] for entry in content["contexts"]}
        context = contexts[content["current-context"]]
        entries = {entry["name"]: entry.get(kind) or {} for entry in content.get(f"{kind}s") or []}
        found = entries[context[kind]]
    except (KeyError, TypeError, AttributeError):
        return None
    return found if isinstance(found, Mapping) else None


def _context(
    cluster: Mapping[str, Any], user: Mapping[str, Any], authority: Authority | None
) -> ssl.SSLContext:
    data = cluster.get("certificate-authority-data")
    if data:
        context = ssl.create_default_context(cadata=base64.b64decode(data).decode())
    elif authority is not None:
        context = ssl.create_default_context(cafile=str(authority.path))
    else:
        context = ssl.create_default_context()
    if cluster.get("insecure-skip-tls-verify") is True:
        # In this order: Python refuses CERT_NONE while host names are checked.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if user.keys() & _CERTIFICATES[0]:
        _present(context, user)
    return context


def _present(context: ssl.SSLContext, user: Mapping[str, Any]) -> None:
    """Make the context present the user's client certificate."""
    # OpenSSL reads certificates from files only. The folder has mode 0700 and exists for this moment alone.
    with tempfile.TemporaryDirectory(prefix="kubeconfig-") as folder:

        def path_of(name: str) -> str:
            data = user.get(f"{name}-data")
            if not data:
                return str(user[name])
            path = Path(folder) / name
            path.write_bytes(base64.b64decode(data))
            return str(path)

        context.load_cert_chain(path_of("client-certificate"), path_of("client-key"))


def _bearer(token: str) -> str:
    return f"Bearer {token.strip()}"


def is_proxied(server: str, environment: Mapping[str, str]) -> bool:
    """Whether requests to the URL go through a proxy, by the rules of Go's clients for environment variables.

    kubectl, kubelets and all other clients of a cluster read HTTPS_PROXY, HTTP_PROXY and NO_PROXY in this way
    (golang.org/x/net/http/httpproxy). Raises ValueError for a URL with a port that is not one.
    """
    parts = urlsplit(server)
    name = f"{parts.scheme.upper()}_PROXY"
    if not (environment.get(name) or environment.get(name.lower())):
        return False
    host, port = (parts.hostname or "").rstrip("."), parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    address = _address(host)
    # Go never sends these to a proxy, whatever NO_PROXY says.
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    exempted = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    return not any(_exempts(entry.strip().lower(), host, address, port) for entry in exempted.split(","))


def _exempts(entry: str, host: str, address: _Address | None, port: int) -> bool:
    """Whether this entry of NO_PROXY covers the host: ``*``, a network, an address or a domain."""
    if entry in ("", "*"):
        return entry == "*"
    # A network, which Python's own urllib does not understand in NO_PROXY, but clusters list their networks
    # there.
    if "/" in entry:
        return address is not None and _is_in(address, entry)
    named, only_port = _split_port(entry)
    if only_port and only_port != str(port):
        return False
    if (named_address := _address(named)) is not None:
        return named_address == address
    domain = named.removeprefix("*")
    if address is not None or not domain:
        return False
    # ``.example.com`` covers subdomains alone, ``example.com`` also the domain itself.
    return host.endswith(domain) if domain.startswith(".") else f".{host}".endswith(f".{domain}")


def _is_in(address: _Address, network: str) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _split_port(entry: str) -> tuple[str, str]:
    """Host and port; the port is empty if there is none. An IPv6 address with a port is in brackets."""
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        return host, rest.removeprefix(":")
    host, colon, port = entry.rpartition(":")
    return (host, port) if colon and ":" not in host else (entry, "")


def _address(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
