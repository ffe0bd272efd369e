"""Writes one JSON object per line to stderr, with the operation's id on every line of a call.

``event`` is a short phrase in lower case; everything that varies is a field of its own. Lines of libraries
that use the standard logging module get the same form.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal, TextIO, get_args

from driver.errors import DriverError, outcome_of

Level = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = get_args(Level)

_SECRET_KEYS = frozenset({"authorization", "cookie", "password", "secret", "token"})
_SECRET_TEXT = re.compile(
    r"(Bearer )[^\s\"\\]+"
    r"|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+"  # a JSON web token
)
_LIBRARIES_LEVEL = logging.WARNING

# The fields of the operation that runs in this context.
_bound: ContextVar[Mapping[str, object]] = ContextVar("bound", default={})  # noqa: B039 - never changed


class _Lines:
    """Writes lines of ``threshold`` and above to a stream, from many threads.

    A line that cannot be written is dropped.
    """

    def __init__(self, stream: TextIO | None, threshold: int) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self.threshold = threshold

    def write(self, level: str, event: str, fields: Mapping[str, object]) -> None:
        """Write one line with these fields and those of the operation; ``exc_info`` becomes a traceback."""
        # time, level and event come first, so that people can read raw lines.
        line: dict[str, object] = {
            "time": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "level": level,
            "event": event,
            **_without_secrets({**_bound.get(), **fields}),
        }
        error = line.pop("exc_info", None)
        if isinstance(error, BaseException):
            line["exception"] = "".join(traceback.format_exception(error)).rstrip()
        # Last, over the whole line: a token may also be in the middle of a library's message.
        text = _SECRET_TEXT.sub(lambda match: (match[1] or "") + "***", json.dumps(line, default=str))
        try:
            with self._lock:
                if self._stream is not None:
                    self._stream.write(text + "\n")
                    # One write and flush under the lock, so that lines of several threads do not mix in the
                    # pipe.
                    self._stream.flush()
        # The reader of the log has gone, or the stream is closed. No claim may fail for that.
        except (OSError, ValueError):
            return


_lines = _Lines(None, logging.CRITICAL)


class Logger:
    """Logs lines of one module: an event with its fields."""

    def __init__(self, module: str) -> None:
        self._module = module

    def debug(self, event: str, **fields: object) -> None:
        """Log details, for somebody who looks for a fault."""
        self._write("debug", logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Log what happened as expected."""
        self._write("info", logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log what failed and is tried again, or what somebody should look at."""
        self._write("warning", logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log a fault; ``exc_info`` is an exception whose traceback is added."""
        self._write("error", logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """Log a fault with the traceback of the exception that is handled."""
        self._write("error", logging.ERROR, event, {**fields, "exc_info": sys.exc_info()[1]})

    def _write(self, level: Level, number: int, event: str, fields: Mapping[str, object]) -> None:
        if number >= _lines.threshold:
            _lines.write(level, event, {"module": self._module, **fields})


class _LibraryHandler(logging.Handler):
    """Writes the standard logging records of libraries in the form of our own lines."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record as one line."""
        try:
            event = record.getMessage()
        # The library's arguments may not fit its own format string.
        except (TypeError, ValueError):
            self.handleError(record)
            return
        error = {"exc_info": record.exc_info[1]} if record.exc_info else {}
        _lines.write(record.levelname.lower(), event, {"module": record.name, **error})


def configure(level: Level, stream: TextIO | None = None) -> None:
    """Log lines of ``level`` and above to ``stream``, by default stderr; may be called again.

    Before the first call nothing is logged.
    """
    global _lines  # noqa: PLW0603 - the log of this process
    threshold = logging.getLevelNamesMapping()[level.upper()]
    _lines = _Lines(stream if stream is not None else sys.stderr, threshold)
    # gRPC's C core writes plain text to stderr. It reads this variable when it starts.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    root = logging.getLogger()
    # Called again, by a test or after the flags are read: do not write each line twice.
    for handler in [one for one in root.handlers if isinstance(one, _LibraryHandler)]:
        root.removeHandler(handler)
    root.addHandler(_LibraryHandler())
    # Libraries say too much below warning, whatever our own level is.
    root.setLevel(max(threshold, _LIBRARIES_LEVEL))


def get_logger(name: str) -> Logger:
    """A logger whose lines carry ``module: name``; may be made before ``configure`` is called."""
    return Logger(name)


@contextmanager
def operation(name: str, **bound: object) -> Iterator[str]:
    """Put a new operation id, and ``bound``, on every line that this thread logs inside the block.

    Returns the id. Begin and end are logged at debug, a DriverError at warning, and any other exception at
    error with its traceback; exceptions are raised again. Inside another operation the lines also have the
    outer id as ``within``. Threads that are started inside need ``contextvars.copy_context``.
    """
    op_id = os.urandom(4).hex()
    outer = _bound.get().get("op")
    if outer is not None:
        bound["within"] = outer
    started = time.perf_counter()
    before = _bound.set({**_bound.get(), "op": op_id, "operation": name, **bound})
    try:
        _log.debug("operation begins")
        yield op_id
        _log.debug("operation ended", outcome="ok", duration_ms=_milliseconds_since(started))
    except Exception as error:
        _log_failure(error, _milliseconds_since(started))
        raise
    finally:
        _bound.reset(before)


def _log_failure(error: Exception, duration_ms: float) -> None:
    outcome = outcome_of(error)
    if outcome == "internal":
        _log.error("operation failed", outcome=outcome, duration_ms=duration_ms, exc_info=error)
    else:
        text = error.logged if isinstance(error, DriverError) else str(error)
        _log.warning("operation failed", outcome=outcome, duration_ms=duration_ms, error=text)


def _milliseconds_since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)


def _without_secrets(fields: Mapping[str, object]) -> dict[str, object]:
    return {
        key: "***"
        if str(key).lower() in _SECRET_KEYS
        else _without_secrets(value)
        if isinstance(value, dict)
        else value
        for key, value in fields.items()
    }


_log = get_logger(__name__)
