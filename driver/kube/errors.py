"""Translates what the Kubernetes API answers, or fails to answer, into one tree of errors.

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

The kind comes from the status code and from ``reason`` of the answered Status (part of the API);
the server's sentences are shown to people and never matched, because they change between versions.
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
    """The credentials are not accepted, at least not any more: they may be renewed meanwhile."""


class Forbidden(ApiError):
    """The credentials do not have the right."""

    retryable = False


class BadRequest(ApiError):
    """The server does not understand the request; older servers say so of newer field selectors."""

    retryable = False


class Invalid(ApiError):
    """The object breaks a rule of the API, so the same request never succeeds."""

    retryable = False


class TooManyRequests(ApiError):
    """The server is busy; ``retry_after_seconds`` is the time that it asks to wait, if it says one."""

    def __init__(self, what: str, way_out: str = "", retry_after_seconds: float | None = None) -> None:
        super().__init__(what, way_out)
        self.retry_after_seconds = retry_after_seconds


class Unreachable(ApiError):
    """No connection, no answer in time, or the server failed (5xx).

    ``retry_after_seconds`` is set when a 503 or 504 carried Retry-After.
    """

    def __init__(self, what: str, way_out: str = "", retry_after_seconds: float | None = None) -> None:
        super().__init__(what, way_out)
        self.retry_after_seconds = retry_after_seconds


class Silent(Unreachable):
    """Nothing came on a watch for too long: its other end may be gone, or there are no bookmarks."""


_BY_STATUS: dict[int, tuple[type[ApiError], str]] = {
    400: (BadRequest, "the API server does not understand this request"),
    401: (Unauthorized, "check that the token or client certificate is valid"),
    403: (Forbidden, "grant this right to the service account"),
    404: (NotFound, "check the name"),
    409: (Conflict, "read the object again and repeat"),
    410: (Gone, "list again"),
}


def error_of_status(
    request: str, code: int, status: Mapping[str, Any], retry_after: str | None = None
) -> ApiError:
    """The error for an answered Status.

    ``request`` names what was asked, ``GET /api/v1/nodes/a`` for example. ``code`` is the HTTP
    status or the ``code`` of a Status within a watch. ``status`` is the Status object or an empty
    mapping. ``retry_after`` is the header of that name.
    """
    message = str(status.get("message") or "")[:_MAX_MESSAGE_CHARACTERS]
    what = f"{request} was answered {code}" + (f", {message}" if message else "")
    if code == 409 and status.get("reason") == "AlreadyExists":
        return AlreadyExists(what, "use the object that is there, or delete it")
    if code == 429:
        return TooManyRequests(what, "wait", _retry_after_seconds(status, retry_after))
    if code >= 500:
        return Unreachable(what, "look at the API server", _retry_after_seconds(status, retry_after))
    kind, way_out = _BY_STATUS.get(code, (Invalid, "correct the object"))
    return kind(what, way_out)


def error_of_response(request: str, code: int, body: bytes, retry_after: str | None) -> ApiError:
    """The error for an HTTP answer outside 2xx, whose body need not be a Status: a proxy may answer too."""
    try:
        status = decode_json(body)
    except ValueError:
        status = {"message": body[:_MAX_MESSAGE_CHARACTERS].decode(errors="replace")}
    return error_of_status(request, code, status if isinstance(status, dict) else {}, retry_after)


def _retry_after_seconds(status: Mapping[str, Any], header: str | None) -> float | None:
    """The header's seconds, else ``details.retryAfterSeconds``, else None; HTTP dates are not used here."""
    details = status.get("details")
    stated = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    for value in (header, stated):
        try:
            seconds = float(value) if value is not None else None
        except (TypeError, ValueError):
            continue
        if seconds is not None and 0 <= seconds < float("inf"):
            return seconds
    return None
