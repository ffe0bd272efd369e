"""Functions on URLs (k8s.io/apiserver/pkg/cel/library/urls.go), which are parsed as by Go's net/url."""

from __future__ import annotations

import ipaddress
import re
import string
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from kubernetes_rules.cel import types
from kubernetes_rules.cel.types import BOOL, STRING, CelError, Overload, Type, function, method
from kubernetes_rules.cel.values import OpaqueValue, traversed_string

_URL_TYPE = Type("kubernetes.URL")

_ALWAYS = (string.ascii_letters + string.digits).encode()
_UNESCAPED = {
    "path": frozenset(_ALWAYS + b"!$&'()*+,;=:@[]%" + b"-./_~"),
    "path written": frozenset(_ALWAYS + b"$&+,-./:;=@_~"),
    "host": frozenset(_ALWAYS + b"!\"$&'()*+,-.:;<=>[]_~"),
    "user": frozenset(_ALWAYS + b"$&+,-.;=_~"),
    "fragment": frozenset(_ALWAYS + b"!$&'()*+,;=:@[]%" + b"-./?_~"),
    "fragment written": frozenset(_ALWAYS + b"!$&()*+,-./:;=?@_~"),
}
_USER_CHARACTERS = frozenset(_ALWAYS + b"-._:~!$&'()*+,;=%@")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})?")
_HOST_TOKEN = re.compile(rb"%([0-9A-Fa-f]{2})?|[\x00-\x7f]")
_PORT = re.compile(rb":[0-9]*")
_SCHEME = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True, eq=False)
class Url(OpaqueValue):
    """An absolute URL; two are equal if their normalized texts are."""

    type: ClassVar[Type] = _URL_TYPE

    parts: ParsedUrl

    def equals(self, other: object) -> bool:
        """Whether both have the same normalized text. Raises CelError for another type."""
        if not isinstance(other, Url):
            raise CelError("no such overload")
        return bytes(self.parts) == bytes(other.parts)


def to_bytes(text: str) -> bytes:
    """The bytes of a string, also of one that came from a URL and is not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def parse(text: str) -> Url:
    """The URL of a text. Raises CelError for other text, and for a relative URL."""
    try:
        parse_request_uri(to_bytes(text))
        return Url(_parse_url(to_bytes(text)))
    except NotUrl as error:
        raise CelError(f"URL parse error during conversion from string: {error}") from error


def _is_url(text: str) -> bool:
    """Whether a text is an absolute URL."""
    try:
        parse_request_uri(to_bytes(text))
    except NotUrl:
        return False
    return True


def _text(part: bytes) -> str:
    return part.decode("utf-8", "surrogateescape")


def _query(url: Url) -> dict[str, tuple[str, ...]]:
    return {_text(name): tuple(map(_text, values)) for name, values in url.parts.query_values().items()}


def _part(name: str, of: Callable[[ParsedUrl], bytes]) -> Overload:
    def call(url: Any) -> str:
        return _text(of(url.parts))

    return method(name, (_URL_TYPE,), STRING, call)


OVERLOADS = (
    function("url", (STRING,), _URL_TYPE, parse, traversed_string()),
    function("isURL", (STRING,), BOOL, _is_url),
    _part("getScheme", lambda parts: parts.scheme),
    _part("getHost", lambda parts: parts.host),
    _part("getHostname", lambda parts: parts.hostname),
    _part("getPort", lambda parts: parts.port),
    _part("getEscapedPath", lambda parts: parts.escaped_path),
    method("getQuery", (_URL_TYPE,), types.map_of(STRING, types.list_of(STRING)), _query),
)


class NotUrl(ValueError):
    """A text is not a URL; the message says why."""


@dataclass(frozen=True, slots=True)
class ParsedUrl:
    """The parts of a URL. ``user`` and ``password`` are None when absent; ``raw_*`` are as written."""

    scheme: bytes = b""
    opaque: bytes = b""
    user: bytes | None = None
    password: bytes | None = None
    host: bytes = b""
    path: bytes = b""
    raw_path: bytes = b""
    query: bytes = b""
    has_query: bool = False
    fragment: bytes = b""
    raw_fragment: bytes = b""
    omits_host: bool = False

    @property
    def escaped_path(self) -> bytes:
        """The path as written if that is a valid escape of it, else escaped again."""
        if self.path == b"*":
            return b"*"
        return _as_written(self.raw_path, self.path, "path")

    @property
    def hostname(self) -> bytes:
        """The host without port and brackets."""
        return _split_host_port(self.host)[0]

    @property
    def port(self) -> bytes:
        """The digits of the port, empty if there is no numeric one."""
        return _split_host_port(self.host)[1]

    def query_values(self) -> dict[bytes, list[bytes]]:
        """The values of each key of the query; malformed parts are left out."""
        values: dict[bytes, list[bytes]] = {}
        # net/url parses no query with more parameters.
        if self.query.count(b"&") >= 10_000:
            return values
        for pair in self.query.split(b"&"):
            # net/url no longer accepts a semicolon as a separator, and drops such a part.
            if not pair or b";" in pair:
                continue
            name, _, value = pair.partition(b"=")
            try:
                name, value = (unescape(text.replace(b"+", b" "), "query") for text in (name, value))
            except NotUrl:
                continue
            values.setdefault(name, []).append(value)
        return values

    def __bytes__(self) -> bytes:
        parts = [self.scheme + b":"] if self.scheme else []
        parts.append(self.opaque or self._hierarchy(bool(self.scheme)))
        if self.has_query or self.query:
            parts.append(b"?" + self.query)
        if self.fragment:
            parts.append(b"#" + _as_written(self.raw_fragment, self.fragment, "fragment"))
        return b"".join(parts)

    def _hierarchy(self, has_scheme: bool) -> bytes:
        authority = b""
        if self.host or self.user is not None or (has_scheme and not self.omits_host and self.path):
            authority = b"//"
            if self.user is not None:
                authority += _escape(self.user, "user")
                authority += b"" if self.password is None else b":" + _escape(self.password, "user")
                authority += b"@"
            authority += _escape(self.host, "host")
        path = self.escaped_path
        if path and not path.startswith(b"/") and self.host:
            return authority + b"/" + path
        if not has_scheme and not authority and b":" in path.partition(b"/")[0]:
            return b"./" + path
        return authority + path


def _as_written(raw: bytes, decoded: bytes, part: str) -> bytes:
    if raw and all(byte in _UNESCAPED[part] for byte in raw):
        return raw
    return _escape(decoded, f"{part} written")


def _escape(text: bytes, part: str) -> bytes:
    kept = _UNESCAPED[part]
    return b"".join(bytes((byte,)) if byte in kept else b"%%%02X" % byte for byte in text)


def unescape(text: bytes, part: str) -> bytes:
    """The text with ``%xx`` decoded. Raises NotUrl for a wrong escape, and for other characters in a host."""
    for match in (_HOST_TOKEN if part in ("host", "zone") else _ESCAPE).finditer(text):
        found = match[0]
        if not found.startswith(b"%"):
            if found[0] not in _UNESCAPED["host"]:
                raise NotUrl("invalid character in host name")
            continue
        escape = text[match.start() : match.start() + 3]
        byte = -1 if match[1] is None else int(match[1], 16)
        if byte < 0 or (escape != b"%25" and not _may_escape(byte, part)):
            raise NotUrl("invalid URL escape")
    return _ESCAPE.sub(lambda match: bytes((int(match[1], 16),)), text)


def _may_escape(byte: int, part: str) -> bool:
    if part == "host":
        return byte >= 0x80
    return part != "zone" or byte == 0x20 or byte in _UNESCAPED["host"]


def _split_host_port(host: bytes) -> tuple[bytes, bytes]:
    """The host without brackets, and the port, empty unless it is numeric."""
    name, colon, port = host.rpartition(b":")
    if not colon or not _PORT.fullmatch(b":" + port):
        name, port = host, b""
    if name.startswith(b"[") and name.endswith(b"]"):
        name = name[1:-1]
    return name, port


def parse_request_uri(text: bytes) -> ParsedUrl:
    """The URL if it is absolute: with a scheme, or a path from the root. Raises NotUrl."""
    return _parse(text, via_request=True)


def _parse_url(text: bytes) -> ParsedUrl:
    """The URL, with its fragment. Raises NotUrl."""
    before, _, fragment = text.partition(b"#")
    parsed = _parse(before, via_request=False)
    if not fragment:
        return parsed
    decoded = unescape(fragment, "fragment")
    raw = b"" if _escape(decoded, "fragment written") == fragment else fragment
    return replace(parsed, fragment=decoded, raw_fragment=raw)


def _parse(text: bytes, *, via_request: bool) -> ParsedUrl:
    if any(byte < 0x20 or byte == 0x7F for byte in text):
        raise NotUrl("net/url: invalid control character in URL")
    if not text and via_request:
        raise NotUrl("empty url")
    if text == b"*":
        return ParsedUrl(path=b"*")
    if text.startswith(b":"):
        raise NotUrl("missing protocol scheme")
    match = _SCHEME.match(text)
    scheme, rest = (match[0][:-1].lower(), text[match.end() :]) if match else (b"", text)
    has_query = rest.endswith(b"?") and rest.count(b"?") == 1
    rest, _, query = rest.partition(b"?")
    if not rest.startswith(b"/"):
        if scheme:
            return ParsedUrl(scheme=scheme, opaque=rest, query=query, has_query=has_query)
        if via_request:
            raise NotUrl("invalid URI for request")
        if b":" in rest.partition(b"/")[0]:
            raise NotUrl("first path segment in URL cannot contain colon")
    user, password, host, omits_host = None, None, b"", False
    if rest.startswith(b"//") and (scheme or not (via_request or rest.startswith(b"///"))):
        authority, slash, rest = rest[2:].partition(b"/")
        rest = slash + rest
        user, password, host = _parse_authority(scheme, authority)
    else:
        omits_host = bool(scheme) and rest.startswith(b"/")
    path = unescape(rest, "path")
    return ParsedUrl(
        scheme=scheme,
        user=user,
        password=password,
        host=host,
        path=path,
        raw_path=b"" if _escape(path, "path written") == rest else rest,
        query=query,
        has_query=has_query,
        omits_host=omits_host,
    )


def _parse_authority(scheme: bytes, authority: bytes) -> tuple[bytes | None, bytes | None, bytes]:
    """User, password and host."""
    before, at, written_host = authority.rpartition(b"@")
    host = _parse_host(scheme, written_host)
    if not at:
        return None, None, host
    if not all(byte in _USER_CHARACTERS for byte in before):
        raise NotUrl("net/url: invalid userinfo")
    user, colon, password = before.partition(b":")
    return unescape(user, "user"), unescape(password, "user") if colon else None, host


def _parse_host(scheme: bytes, host: bytes) -> bytes:
    bracket = host.rfind(b"[")
    if bracket > 0:
        raise NotUrl("invalid IP-literal")
    if bracket == 0:
        return _parse_ip_literal(host)
    if b":" in host:
        strict = scheme in (b"http", b"https")
        port = host[host.index(b":") :] if strict else host[host.rindex(b":") :]
        _check_port(port)
    return unescape(host, "host")


def _check_port(port: bytes) -> None:
    if port and not _PORT.fullmatch(port):
        raise NotUrl("invalid port after host")


def _parse_ip_literal(host: bytes) -> bytes:
    """A host such as ``[fe80::1%25en0]:80``, unescaped."""
    if b"]" not in host:
        raise NotUrl("missing ']' in host")
    literal, _, port = host[1:].rpartition(b"]")
    _check_port(port)
    address, percent, zone = literal.partition(b"%25")
    name = unescape(address, "host") + unescape(percent + zone, "zone")
    if not _is_ipv6(name):
        raise NotUrl("invalid host")
    return b"[" + name + b"]" + port


def _is_ipv6(name: bytes) -> bool:
    address, percent, zone = name.partition(b"%")
    try:
        ipaddress.IPv6Address(address.decode("ascii"))
    except (UnicodeDecodeError, ValueError):
        return False
    return bool(zone) or not percent
