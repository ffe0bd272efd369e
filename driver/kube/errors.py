"""Translates answers of the Kubernetes API that are errors, and missing answers, into one tree of errors.

    ApiError (driver.errors)
    ├── NotFound           permanent   404: there is no such object, or no such API version
    ├── AlreadyExists      permanent   409 on create
    ├── Conflict           retryable   409: the object changed in between, or a precondition failed
    ├── Gone               retryable   410: the resourceVersion or the continue token is too old
    ├── Unauthorized       retryable   401: the token or certificate has expired or is not known
    ├── Forbidden          permanent   403: the rights have to be granted first
    ├── BadRequest         permanent   400: the server does not understand, a field selector perhaps
    ├── Invalid            permanent   422 and other 4xx: the object breaks a rule of the API
    ├── TooManyRequests    retryable   429, with the time that the server asks to wait
    └── Unreachable        retryable   no connection, no answer in time, or 5xx
        └── Silent         retryable   a watch on which nothing came for longer than bookmarks are apart

The kind comes from the status code and from ``reason`` of the Status in the answer, which is part of the API.
The server's messages are shown to people and never compared, because they change between versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driver.errors import ApiError
from driver.kube.decode import decode_json

_MAX_MESSAGE_CHARACTERS = 500


class NotFound(ApiError):
    """There is no such object, or the server does not serve this API version."""

    retryable = False


class AlreadyExists(ApiError):
    """An object of that name is there already."""

    retryable = False


class Conflict(ApiError):
    """The object was changed or replaced since it was read, or a precondition does not hold."""


class Gone(ApiError):
    """The resourceVersion or the continue token is too old: list again from the start."""


class Unauthorized(ApiError):
    """The credentials are not accepted, perhaps not any more. They may be renewed."""


class Forbidden(ApiError):
    """The credentials do not have the right."""

    retryable = False


class BadRequest(ApiError):
    """The server does not understand the request. Older servers answer so to newer field selectors."""

    retryable = False


class Invalid(ApiError):
    """The object breaks a rule of the API, so the same request never succeeds."""

    retryable = False


class TooManyRequests(ApiError):
    """The server is busy; ``retry_after_seconds`` is the time that it asks to wait, None if it names none."""

    def __init__(self, what: str, way_out: str = "", retry_after_seconds: float | None = None) -> None:
        super().__init__(what, way_out)
        self.retry_after_seconds = retry_after_seconds


class Unreachable(ApiError):
    """No connection, no answer in time, or the server failed (5xx).

    ``retry_after_seconds`` is set if a 503 or 504 had the header Retry-After.
    """

    def __init__(self, what: str, way_out: str = "", retry_after_seconds: float | None = None) -> None:
        super().__init__(what, way_out)
        self.retry_after_seconds = retry_after_seconds


class Silent(Unreachable):
    """Nothing came on a watch for too long: the other end may be gone, or sends no bookmarks."""


_BY_STATUS: dict[int, tuple[type[ApiError], str]] = {
    400: (BadRequest, "the API server does not understand this request"),
    401: (Unauthorized, "check that the token or client certificate is valid"),
    403: (Forbidden, "grant this right to the service account"),
    404: (NotFound, "check the name"),
    409: (Conflict, "read the object again and repeat the change"),
    410: (Gone, "list again"),
}


def error_of_status(
    request: str, code: int, status: Mapping[str, Any], retry_after: str | None = None
) -> ApiError:
    """The error for a Status in an answer.

    ``request`` names what was asked, ``GET /api/v1/nodes/a`` for example. ``code`` is the HTTP
    status or the ``code`` of a Status within a watch. ``status`` is the Status object or an empty
    mapping. ``retry_after`` is the header of that name.
    """
    message = str(status.get("message") or "")[:_MAX_MESSAGE_CHARACTERS]
    what = f"{request} was answered {code}" + (f", {message}" if message else "")
    # 409 has two meanings: on create the name is taken, on update the object was changed.
    if code == 409 and status.get("reason") == "AlreadyExists":
        return AlreadyExists(what, "use the existing object, or delete it")
    # The API server's priority and fairness, or an eviction that a disruption budget forbids.
    if code == 429:
        return TooManyRequests(what, "wait", _retry_after_seconds(status, retry_after))
    if code >= 500:
        return Unreachable(what, "check the API server", _retry_after_seconds(status, retry_after))
    # All other 4xx are about the object itself. Above all 422: it breaks a rule of validation or admission.
    kind, way_out = _BY_STATUS.get(code, (Invalid, "correct the object"))
    return kind(what, way_out)


def error_of_response(request: str, code: int, body: bytes, retry_after: str | None) -> ApiError:
    """The error for an HTTP answer outside 2xx. Its body need not be a Status, since a proxy may answer."""
    try:
        status = decode_json(body)
    except ValueError:
        # A proxy answers with HTML or plain text: show the beginning of it.
        status = {"message": body[:_MAX_MESSAGE_CHARACTERS].decode(errors="replace")}
    return error_of_status(request, code, status if isinstance(status, dict) else {}, retry_after)


def _retry_after_seconds(status: Mapping[str, Any], header: str | None) -> float | None:
    """The header's seconds, else ``details.retryAfterSeconds``, else None."""
    details = status.get("details")
    stated = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    for value in (header, stated):
        try:
            seconds = float(value) if value is not None else None
        except (TypeError, ValueError):
            continue
        # NaN and infinity are floats too. The API server sends seconds; an HTTP date of a proxy is not used.
        if seconds is not None and 0 <= seconds < float("inf"):
            return seconds
    return None
