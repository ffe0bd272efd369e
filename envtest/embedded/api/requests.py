"""Reads requests to the API: method, path, query, and the options of a write.

Options that cannot be read are refused with 400, those that make no sense with 422.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote, unquote_plus

from envtest.embedded.api.statuses import Refused, invalid, not_registered
from envtest.embedded.schema.decoding import Decoder, DecodingError
from envtest.embedded.schema.types import FieldType
from kubernetes_rules.printed import quoted
from kubernetes_rules.validation import field as field_errors

Verb = Literal["", "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]

Object = dict[str, Any]

_META = "meta.k8s.io"
_DELETE_OPTIONS = FieldType("struct", "meta.v1.DeleteOptions")
_POLICIES = ("Foreground", "Background", "Orphan")
_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_KINDS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
MOST_DIGITS = 20
"""More have no number of 64 bits, and Python reads no integer of more than 4,300."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class User:
    """A user: name, groups, and the node that a pod with their token runs on."""

    name: str
    groups: tuple[str, ...] = ()
    node: str = ""


ADMIN = User("system:admin", ("system:masters", "system:authenticated"))
"""The user of every request where the server does not ask who somebody is."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request in the words of the API: verb, resource and object.

    ``namespace``, ``name`` and ``subresource`` are empty where the path has none. ``below`` is the path after
    ``proxy/``, which a pod is asked for. ``client`` is the name that the client gives itself, ``user`` who it
    is. ``verb`` is empty for a method that no resource has, ``dry_run`` all values of that parameter.
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
    user: User = ADMIN
    dry_run: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version


def parse_request(method: str, target: str, client: str = "") -> Request | None:
    """The request, or None when the path is not that of a resource.

    ``method`` is the HTTP method, ``target`` the path with its query.
    """
    path, _, query_text = target.partition("?")
    query, dry_run = _query(query_text)
    # A slash at the end means nothing, an empty part anywhere else is no part of a resource's path.
    match unquote(path).removeprefix("/").removesuffix("/").split("/"):
        case ["api", version, *rest] if rest and all(rest):
            group = ""
        case ["apis", group, version, *rest] if rest and all(rest):
            pass
        case _:
            return None
    namespace = ""
    # namespaces/NAME/status is a subresource of the namespace, not a collection in it.
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource, *more = [*rest, "", ""][: max(3, len(rest))]
    verb = _verb(method, query, has_name=bool(name), is_subresource=bool(subresource))
    if more and subresource != "proxy":
        return None
    return Request(
        verb,
        path,
        group,
        version,
        resource,
        namespace,
        name,
        subresource,
        query,
        client,
        below="/".join(more),
        dry_run=dry_run,
    )


def _query(text: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """The query, of a parameter that comes twice the first value; and all values of dryRun."""
    query: dict[str, str] = {}
    dry_run = []
    for pair in filter(None, text.split("&")):
        name, _, value = (unquote_plus(part) for part in pair.partition("="))
        query.setdefault(name, value)
        if name == "dryRun":
            dry_run.append(value)
    return query, tuple(dry_run)


def _verb(method: str, query: dict[str, str], *, has_name: bool, is_subresource: bool) -> Verb:
    """The API's verb for an HTTP method; empty where the API has none."""
    # The parameter has no effect on a get.
    if method == "GET" and not has_name and query.get("watch", "0").lower() not in ("false", "0"):
        return "watch"
    # Such as binding and eviction, which are asked for by creating an object.
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
    return verbs.get((method, has_name), "")


def query_integer(request: Request, name: str) -> int | None:
    """A number of the query, None where it has none; raises Refused (400)."""
    text = request.query.get(name)
    if text is None:
        return None
    if not _INTEGER.fullmatch(text):
        raise Refused(400, f"{name} has to be a number of 64 bits, not {quoted(text)}")
    return int(text)


def query_flag(request: Request, name: str) -> bool:
    """A truth value of the query: all but false and 0 is true (Convert_Slice_string_To_bool)."""
    return name in request.query and request.query[name].lower() not in ("false", "0")


def delete_options(request: Request, body: Any) -> Object:
    """The DeleteOptions of the body, or those of the query where there is no body.

    Raises Refused (400, 422).
    """
    # The server reads the options of the query only where there is no body.
    options = _from_query(request) if body is None else _from_body(body)
    errors = _delete_errors(options)
    if errors:
        raise invalid(_META, "DeleteOptions", "", errors)
    return options


def check_write_options(request: Request, *, is_apply: bool = False) -> None:
    """Check the query of a write; raises Refused (422). Go: ValidateCreateOptions, ValidatePatchOptions."""
    errors = []
    if is_apply and not request.query.get("fieldManager"):
        errors.append(field_errors.required("fieldManager", "is required for apply patch"))
    errors += _dry_run_errors(request.dry_run)
    validation = request.query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        errors.append(field_errors.not_supported("fieldValidation", validation, _VALIDATIONS))
    if errors:
        raise invalid(_META, _KINDS[request.verb], "", errors)


def is_dry(request: Request, options: Object) -> bool:
    """Whether the request is to be checked and answered, and nothing written (dryRun=All)."""
    return "All" in request.dry_run or "All" in (options.get("dryRun") or [])


def _from_query(request: Request) -> Object:
    options: Object = {}
    seconds = query_integer(request, "gracePeriodSeconds")
    if seconds is not None:
        options["gracePeriodSeconds"] = seconds
    if "propagationPolicy" in request.query:
        options["propagationPolicy"] = request.query["propagationPolicy"]
    if request.dry_run:
        options["dryRun"] = list(request.dry_run)
    return options


def _from_body(body: Any) -> Object:
    if not isinstance(body, dict):
        raise Refused(400, "couldn't get version/kind; json parse error: the body is no object")
    kind, version = body.get("kind") or "DeleteOptions", body.get("apiVersion") or "v1"
    if kind != "DeleteOptions":
        raise Refused(400, not_registered(kind, version))
    try:
        decoded: Object = Decoder().decode(body, _DELETE_OPTIONS)
    except DecodingError as error:
        raise Refused(400, str(error)) from error
    return decoded


def _delete_errors(options: Object) -> list[field_errors.FieldError]:
    errors = []
    policy = options.get("propagationPolicy")
    if policy is not None and policy not in _POLICIES:
        errors.append(field_errors.not_supported("propagationPolicy", policy, (*_POLICIES, "nil")))
    return errors + _dry_run_errors(options.get("dryRun") or [])


def _dry_run_errors(values: Sequence[str]) -> list[field_errors.FieldError]:
    return [] if set(values) <= {"All"} else [field_errors.not_supported("dryRun", list(values), ("All",))]
