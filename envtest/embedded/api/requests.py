"""Reads what a request to the API asks for out of its method, path and query."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]


@dataclass(frozen=True, slots=True)
class Request:
    """One request in the words of the API: verb, resource and object.

    ``namespace`` and ``name`` are empty where the path has none; ``subresource`` likewise. ``below`` is the
    path that is asked of a pod, after ``proxy/``. ``client`` is what the client calls itself.
    """

    verb: Verb
    path: str
    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: dict[str, str] = field(default_factory=dict)
    client: str = ""
    below: str = ""

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version


def parse_request(method: str, target: str, client: str = "") -> Request | None:
    """The request, or None when the path is not that of a resource.

    ``method`` is the HTTP method, ``target`` the path with its query.
    """
    if target.startswith("//"):
        return None
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    match [unquote(part) for part in parts.path.strip("/").split("/")]:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource, *more = [*rest, "", ""][: max(3, len(rest))]
    verb = _verb(method, query, has_name=bool(name), is_subresource=bool(subresource))
    if verb is None or (more and subresource != "proxy"):
        return None
    below = "/".join(more)
    return Request(
        verb, parts.path, group, version, resource, namespace, name, subresource, query, client, below
    )


def _verb(method: str, query: dict[str, str], *, has_name: bool, is_subresource: bool) -> Verb | None:
    """The API's verb for an HTTP method; None where the API has none."""
    if method == "GET" and query.get("watch") in ("1", "true"):
        return "watch"
    if method == "POST" and is_subresource:
        return "create"
    verbs: dict[tuple[str, bool], Verb] = {
        ("GET", True): "get",
        ("GET", False): "list",
        ("POST", False): "create",
        ("PUT", True): "update",
        ("PATCH", True): "patch",
        ("DELETE", True): "delete",
        ("DELETE", False): "deletecollection",
    }
    return verbs.get((method, has_name))
