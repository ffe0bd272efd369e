"""Functions on IP addresses and networks (k8s.io/apiserver/pkg/cel/library/ip.go and cidr.go)."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from kubernetes_rules.cel import values
from kubernetes_rules.cel.types import BOOL, INT, STRING, CelError, Cost, Overload, Type, function, method

IP_TYPE = Type("net.IP")
CIDR_TYPE = Type("net.CIDR")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_LINK_LOCAL = (ipaddress.ip_network("169.254.0.0/16"), ipaddress.ip_network("fe80::/10"))
_LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
_BROADCAST = ipaddress.ip_address("255.255.255.255")


@dataclass(frozen=True, slots=True)
class Ip(values.OpaqueValue):
    """An IPv4 or IPv6 address, without a zone and not IPv4-mapped."""

    type: ClassVar[Type] = IP_TYPE

    address: _Address

    @property
    def octets(self) -> int:
        """Its size, from which costs are computed."""
        return self.address.max_prefixlen // 8

    def __str__(self) -> str:
        return str(self.address)


@dataclass(frozen=True, slots=True)
class Cidr(values.OpaqueValue):
    """An address with a prefix length; the bits after the prefix are kept and count in comparisons."""

    type: ClassVar[Type] = CIDR_TYPE

    address: _Address
    prefix_length: int

    @property
    def octets(self) -> int:
        """The size of its prefix, from which costs are computed."""
        return math.ceil(self.prefix_length / 8)

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix_length}"


def parse_ip(text: str) -> Ip:
    """The address of a text. Raises CelError for other text, a zone, and an IPv4-mapped IPv6 address."""
    try:
        address = ipaddress.ip_address(text) if text.isascii() and "%" not in text else None
    except ValueError:
        address = None
    if address is None:
        raise CelError(f"{text[:64]!r} is not an IP address without a zone")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise CelError(f"IPv4-mapped IPv6 address {text!r} is not allowed")
    return Ip(address)


def parse_cidr(text: str) -> Cidr:
    """The network of a text such as ``10.1.0.0/16``. Raises CelError for other text."""
    address, slash, length = text.rpartition("/")
    if (
        not slash
        or not (length.isascii() and length.isdigit())
        or len(length) > 3
        or length != str(int(length))
    ):
        raise CelError(f"{text[:64]!r} is not an IP network such as 10.1.0.0/16")
    ip = parse_ip(address).address
    if int(length) > ip.max_prefixlen:
        raise CelError(f"{text[:64]!r} is not an IP network: its prefix is too long")
    return Cidr(ip, int(length))


def _holds(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def holds(text: str) -> bool:
        try:
            parse(text)
        except CelError:
            return False
        return True

    return holds


def masked(cidr: Cidr) -> Cidr:
    """The network with the bits after its prefix cleared."""
    behind = cidr.address.max_prefixlen - cidr.prefix_length
    return Cidr(type(cidr.address)((int(cidr.address) >> behind) << behind), cidr.prefix_length)


def contains_ip(cidr: Cidr, ip: Ip) -> bool:
    """Whether an address is in the network."""
    return ip.address.version == cidr.address.version and masked(
        Cidr(ip.address, cidr.prefix_length)
    ) == masked(cidr)


def contains_cidr(cidr: Cidr, other: Cidr) -> bool:
    """Whether a network is within the network."""
    return cidr.prefix_length <= other.prefix_length and contains_ip(cidr, Ip(other.address))


def _is_link_local_unicast(ip: Ip) -> bool:
    return any(ip.address in network for network in _LINK_LOCAL)


def _is_link_local_multicast(ip: Ip) -> bool:
    number = int(ip.address)
    if ip.address.version == 4:
        return number >> 8 == 0xE00000
    return number >> 112 & 0xFF0F == 0xFF02


def _is_loopback(ip: Ip) -> bool:
    return any(ip.address in network for network in _LOOPBACK)


def _is_global_unicast(ip: Ip) -> bool:
    return not (
        int(ip.address) == 0
        or ip.address == _BROADCAST
        or ip.address.is_multicast
        or _is_loopback(ip)
        or _is_link_local_unicast(ip)
    )


def _contains_cost(masks_too: bool, parses: bool) -> Cost:
    def cost(arguments: tuple[Any, ...], _: Any) -> int:
        octets = values.size(arguments[0])
        units = math.ceil(float(octets + octets) * values.CHARACTERS_PER_UNIT)
        if masks_too:
            units += math.ceil(float(octets) * values.CHARACTERS_PER_UNIT) + 1
        return units + values.string_units(arguments[1]) if parses else units

    return cost


def _of_ip(name: str, result: Type, call: Callable[[Ip], Any]) -> Overload:
    return method(name, (IP_TYPE,), result, call)


_once = values.traversed_string()


def _inner(parse: Callable[[str], Any], text: str) -> Any:
    """The argument of containsIP and containsCIDR. Kubernetes does not say what is wrong in it."""
    try:
        return parse(text)
    except CelError as error:
        raise CelError("no such overload") from error


OVERLOADS = (
    function("ip", (STRING,), IP_TYPE, parse_ip, _once),
    method("ip", (CIDR_TYPE,), IP_TYPE, lambda cidr: Ip(cidr.address)),
    function("isIP", (STRING,), BOOL, _holds(parse_ip), _once),
    function(
        "ip.isCanonical",
        (STRING,),
        BOOL,
        lambda text: str(parse_ip(text)) == text,
        values.traversed_string(2),
    ),
    _of_ip("family", INT, lambda ip: ip.address.version),
    _of_ip("isUnspecified", BOOL, lambda ip: int(ip.address) == 0),
    _of_ip("isLoopback", BOOL, _is_loopback),
    _of_ip("isLinkLocalMulticast", BOOL, _is_link_local_multicast),
    _of_ip("isLinkLocalUnicast", BOOL, _is_link_local_unicast),
    _of_ip("isGlobalUnicast", BOOL, _is_global_unicast),
    function("string", (IP_TYPE,), STRING, str),
    function("cidr", (STRING,), CIDR_TYPE, parse_cidr, _once),
    function("isCIDR", (STRING,), BOOL, _holds(parse_cidr), _once),
    method(
        "containsIP",
        (CIDR_TYPE, STRING),
        BOOL,
        lambda cidr, text: contains_ip(cidr, _inner(parse_ip, text)),
        _contains_cost(masks_too=False, parses=True),
    ),
    method(
        "containsIP", (CIDR_TYPE, IP_TYPE), BOOL, contains_ip, _contains_cost(masks_too=False, parses=False)
    ),
    method(
        "containsCIDR",
        (CIDR_TYPE, STRING),
        BOOL,
        lambda cidr, text: contains_cidr(cidr, _inner(parse_cidr, text)),
        _contains_cost(masks_too=True, parses=True),
    ),
    method(
        "containsCIDR",
        (CIDR_TYPE, CIDR_TYPE),
        BOOL,
        contains_cidr,
        _contains_cost(masks_too=True, parses=False),
    ),
    method("prefixLength", (CIDR_TYPE,), INT, lambda cidr: cidr.prefix_length),
    method("masked", (CIDR_TYPE,), CIDR_TYPE, masked),
    function("string", (CIDR_TYPE,), STRING, str),
)
