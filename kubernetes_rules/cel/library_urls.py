"""Functions over URLs (k8s.io/apiserver/pkg/cel/library/urls.go)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from kubernetes_rules.cel.library_url_parsing import NotUrl, ParsedUrl, parse_request_uri, parse_url
from kubernetes_rules.cel.library_values import OpaqueValue, function, method, traversed_string
from kubernetes_rules.cel.types import BOOL, STRING, CelError, Overload, Type, list_of, map_of

URL_TYPE = Type("kubernetes.URL")


@dataclass(frozen=True, slots=True, eq=False)
class Url(OpaqueValue):
    """An absolute URL; two are equal when they are written equally after normalization."""

    type: ClassVar[Type] = URL_TYPE

    parts: ParsedUrl

    def equals(self, other: object) -> bool:
        """Whether both are written equally. Raises CelError for another type."""
        if not isinstance(other, Url):
            raise CelError("no such overload")
        return bytes(self.parts) == bytes(other.parts)


def to_bytes(text: str) -> bytes:
    """The bytes of a string, also of one that came from a URL and is no UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def parse(text: str) -> Url:
    """The URL that a text is. Raises CelError when it is none, or a relative one."""
    try:
        parse_request_uri(to_bytes(text))
        return Url(parse_url(to_bytes(text)))
    except NotUrl as error:
        raise CelError(f"URL parse error during conversion from string: {error}") from error


def is_url(text: str) -> bool:
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

    return method(name, (URL_TYPE,), STRING, call)


OVERLOADS = (
    function("url", (STRING,), URL_TYPE, parse, traversed_string()),
    function("isURL", (STRING,), BOOL, is_url),
    _part("getScheme", lambda parts: parts.scheme),
    _part("getHost", lambda parts: parts.host),
    _part("getHostname", lambda parts: parts.hostname),
    _part("getPort", lambda parts: parts.port),
    _part("getEscapedPath", lambda parts: parts.escaped_path),
    method("getQuery", (URL_TYPE,), map_of(STRING, list_of(STRING)), _query),
)
