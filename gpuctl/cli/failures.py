"""Says what went wrong as a sentence for people, without error numbers and tracebacks."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator

from driver.errors import DriverError
from driver.kube.errors import Unauthorized, Unreachable
from kubernetes_rules.errors import RuleError

_ERRNO = re.compile(r"\[(?:Errno -?\d+|SSL[^]]*)\] ?")
_YAML_MARK = re.compile(r'\s+in "[^"]*", (line \d+, column \d+)(?::\n.*\n *\^)?')
"""Where PyYAML found a mistake, with the line and a mark below it."""


def error_text(error: Exception) -> str:
    """What happened and what to do about it."""
    if isinstance(error, Unreachable) and (reason := _reason(error)):
        return f"the API server cannot be reached: {reason}; check the server of the kubeconfig, or --context"
    if isinstance(error, Unauthorized):
        return f"{_plain(error.what)}; check the user of the kubeconfig, or log in again"
    if isinstance(error, (DriverError, RuleError)):
        return "; ".join(filter(None, (_plain(error.what), _plain(error.way_out))))
    if isinstance(error, OSError) and error.strerror:
        name = f"{error.filename}: " if error.filename else ""
        return f"{name}{error.strerror}"
    return _plain(str(error))


def _plain(text: str) -> str:
    """The text without error numbers such as ``[Errno 111]``, OpenSSL's names, and quotations of YAML."""
    told, quotations = _YAML_MARK.subn(r" (\1)", _ERRNO.sub("", text))
    return " ".join(told.split()) if quotations else told


def _reason(error: Exception) -> str | None:
    """Why there is no connection, in the words of the innermost OSError; None if there is no OSError."""
    found = None
    for cause in _causes(error):
        # SSLError is an OSError too. verify_message says what is wrong with the server's certificate.
        if isinstance(cause, ssl.SSLError):
            return getattr(cause, "verify_message", "") or str(cause.reason or "TLS failed").lower()
        if isinstance(cause, TimeoutError):
            found = "no answer in time"
        elif isinstance(cause, OSError) and cause.strerror:
            found = cause.strerror
    return found


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and the errors that caused it, from the outside in."""
    # Somebody may have raised an error from itself or from one further in: then the chain has no end.
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        # urllib3 keeps the error behind MaxRetryError as its reason. SSLError.reason is a text.
        reason = getattr(following, "reason", None)
        following = (
            reason if isinstance(reason, BaseException) else following.__cause__ or following.__context__
        )
