"""The Status answers of the API server: code, reason and details as apimachinery's errors have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kubernetes_rules.printed import quoted
from kubernetes_rules.validation.field import FieldError

Object = dict[str, Any]

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def status_body(
    code: int, message: str, reason: str | None = None, details: Object | None = None
) -> dict[str, Any]:
    """A metav1.Status of a failure. The reason is the usual one of ``code`` unless given; it may be empty."""
    reason = _REASONS.get(code, "Unknown") if reason is None else reason
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        **({"reason": reason} if reason else {}),
        **({} if details is None else {"details": details}),
        "code": code,
    }


def internal_error(error: Exception) -> dict[str, Any]:
    """The answer to a request at which the server itself failed (apimachinery: NewInternalError)."""
    text = f"{type(error).__name__}: {error}"
    causes = {"causes": [{"message": text}]}
    return status_body(500, f"Internal error occurred: {text}", details=causes)


def details_of(group: str, resource: str, name: str) -> Object:
    """The details that name an object."""
    found = {"name": name, "group": group, "kind": resource}
    return {key: value for key, value in found.items() if value}


def not_registered(kind: object, api_version: object) -> str:
    """Why a body of an unknown kind is refused (apimachinery: NewNotRegisteredErrForKind)."""
    names = f"no kind {quoted(str(kind))} is registered for version {quoted(str(api_version))}"
    return f'{names} in scheme "pkg/runtime/scheme.go:111"'


def conflict_causes(conflicts: Iterable[tuple[str, str]]) -> list[Object]:
    """The causes of a conflict of server-side apply, from pairs of a message and a field."""
    return [
        {"reason": "FieldManagerConflict", "message": message, "field": field} for message, field in conflicts
    ]


class Refused(Exception):
    """A request is refused; ``body`` is the Status to answer with."""

    def __init__(
        self, code: int, message: str, reason: str | None = None, details: Object | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.body = status_body(code, message, reason, details)


def plain_go_error(message: str) -> Refused:
    """The answer where the code of Kubernetes returns a plain Go error: 500 without a reason.

    Some mistakes of clients are answered so, malformed strategic merge patches for example.
    """
    return Refused(500, message, "")


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> Refused:
    """The 422 that lists what is wrong with an object, each with its field."""
    causes = [{"reason": error.type, "message": error.detail, "field": error.field} for error in errors]
    # Equal texts are listed once (utilerrors.Aggregate).
    texts = list(dict.fromkeys(str(error) for error in errors))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    qualified = f"{kind}.{group}" if group else kind
    details = {**details_of(group, kind, name), "causes": causes}
    return Refused(422, f"{qualified} {quoted(name)} is invalid: {listed}", details=details)
