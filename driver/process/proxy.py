"""Whether a server is reached through a proxy, by the environment variables and rules of Go's clients.

kubectl, kubelets and every other client of the cluster read HTTPS_PROXY, HTTP_PROXY and NO_PROXY so
(golang.org/x/net/http/httpproxy), and NO_PROXY of a cluster is written for them: it names networks.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULT_PORTS = {"http": 80, "https": 443}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_proxied(server: str, environment: Mapping[str, str]) -> bool:
    """Whether requests to the URL go to a proxy; raises ValueError for a URL with a port that is none."""
    parts = urlsplit(server)
    name = f"{parts.scheme.upper()}_PROXY"
    if not (environment.get(name) or environment.get(name.lower())):
        return False
    host, port = (parts.hostname or "").rstrip("."), parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    spared = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    return not any(_spares(entry.strip().lower(), host, address, port) for entry in spared.split(","))


def _spares(entry: str, host: str, address: Address | None, port: int) -> bool:
    """Whether this entry of NO_PROXY names the host: ``*``, a network, an address or a domain."""
    if entry in ("", "*"):
        return entry == "*"
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
    return host.endswith(domain) if domain.startswith(".") else f".{host}".endswith(f".{domain}")


def _is_in(address: Address, network: str) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _split_port(entry: str) -> tuple[str, str]:
    """Host and port, which is empty without one; an address of IPv6 with a port stands in brackets."""
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        return host, rest.removeprefix(":")
    host, colon, port = entry.rpartition(":")
    return (host, port) if colon and ":" not in host else (entry, "")


def _address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
