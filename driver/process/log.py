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
from random import getrandbits
from types import MappingProxyType
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

# The fields of the operation that this thread is in.
_fields: ContextVar[Mapping[str, object]] = ContextVar("fields", default=MappingProxyType({}))


class _Lines:
    """Writes whole lines to a stream from many threads. A line that cannot be written is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def write(self, line: str) -> None:
        """Write one line."""
        try:
            with self._lock:
                self._stream.write(line + "\n")
                # One write and flush under the lock, so that lines of several threads do not mix in the pipe.
                self._stream.flush()
        # The reader of the log has gone, or the stream is closed. No claim may fail for that.
        except (OSError, ValueError):
            return


class _Sink:
    """Where lines go, and from which level on."""

    lines: _Lines | None = None
    threshold = logging.INFO


class Logger:
    """Writes lines with ``module``; ``exc_info`` may be True or an exception, as for the logging module."""

    def __init__(self, module: str) -> None:
        self._module = module

    def debug(self, event: str, **fields: object) -> None:
        """What only helps to find a fault in the driver."""
        _log_line(logging.DEBUG, {"event": event, "module": self._module, **fields})

    def info(self, event: str, **fields: object) -> None:
        """What is as it should be."""
        _log_line(logging.INFO, {"event": event, "module": self._module, **fields})

    def warning(self, event: str, **fields: object) -> None:
        """What passes, or harms one claim alone."""
        _log_line(logging.WARNING, {"event": event, "module": self._module, **fields})

    def error(self, event: str, **fields: object) -> None:
        """What somebody has to look at."""
        _log_line(logging.ERROR, {"event": event, "module": self._module, **fields})

    def exception(self, event: str, **fields: object) -> None:
        """An error with the traceback of the exception that is being handled."""
        self.error(event, exc_info=True, **fields)


def _log_line(level: int, fields: dict[str, object]) -> None:
    if level >= _Sink.threshold and _Sink.lines is not None:
        _Sink.lines.write(_rendered(level, fields))


class _LibraryHandler(logging.Handler):
    """Writes the standard logging records of libraries in the form of our own lines."""

    def __init__(self, lines: _Lines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record as one line."""
        try:
            fields: dict[str, object] = {"event": record.getMessage(), "module": record.name}
        # The library's arguments may not fit its own format string.
        except (TypeError, ValueError):
            self.handleError(record)
            return
        self._lines.write(_rendered(record.levelno, {**fields, "exc_info": record.exc_info}))


def configure(level: Level, stream: TextIO | None = None) -> None:
    """Log lines of ``level`` and above to ``stream``, by default stderr; may be called again."""
    lines = _Lines(stream if stream is not None else sys.stderr)
    threshold = logging.getLevelNamesMapping()[level.upper()]
    _Sink.lines, _Sink.threshold = lines, threshold
    # gRPC's C core writes plain text to stderr. It reads this variable when it starts.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    root = logging.getLogger()
    # Called again, by a test or after the flags are read: do not write each line twice.
    for handler in [one for one in root.handlers if isinstance(one, _LibraryHandler)]:
        root.removeHandler(handler)
    root.addHandler(_LibraryHandler(lines))
    # Libraries say too much below warning, whatever our own level is.
    root.setLevel(max(threshold, _LIBRARIES_LEVEL))


def get_logger(name: str) -> Logger:
    """A logger whose lines carry ``module: name``; before ``configure`` is called, it writes nothing."""
    return Logger(name)


@contextmanager
def operation(name: str, **bound: object) -> Iterator[str]:
    """Put a new operation id, and ``bound``, on every line that this thread logs inside the block.

    Returns the id. Begin and end are logged at debug, a DriverError at warning, and any other exception at
    error with its traceback; exceptions are raised again. Inside another operation the lines also have the
    outer id as ``within``. Threads that are started inside need ``contextvars.copy_context``.
    """
    op_id = f"{getrandbits(32):08x}"
    outer = _fields.get()
    within = {"within": outer["op"]} if "op" in outer else {}
    started = time.perf_counter()
    token = _fields.set({**outer, **bound, **within, "op": op_id, "operation": name})
    try:
        _log.debug("operation begins")
        try:
            yield op_id
        except Exception as error:
            _log_failure(error, _milliseconds_since(started))
            raise
        _log.debug("operation ended", outcome="ok", duration_ms=_milliseconds_since(started))
    finally:
        _fields.reset(token)


def _log_failure(error: Exception, duration_ms: float) -> None:
    outcome = outcome_of(error)
    if outcome == "internal":
        _log.error("operation failed", outcome=outcome, duration_ms=duration_ms, exc_info=error)
    else:
        text = error.logged if isinstance(error, DriverError) else str(error)
        _log.warning("operation failed", outcome=outcome, duration_ms=duration_ms, error=text)


def _milliseconds_since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)


def _rendered(level: int, fields: dict[str, object]) -> str:
    # time, level and event come first, so that people can read raw lines.
    first = {
        "time": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "level": logging.getLevelName(level).lower(),
        "event": fields.pop("event"),
    }
    if raised := _exception(fields.pop("exc_info", None)):
        fields["exception"] = "".join(traceback.format_exception(raised)).rstrip()
    line = json.dumps({**first, **_without_secrets({**_fields.get(), **fields})}, default=str)
    # Last, over the whole line: a token may also be in the middle of a library's message.
    return _SECRET_TEXT.sub(lambda match: (match[1] or "") + "***", line)


def _exception(info: object) -> BaseException | None:
    if isinstance(info, tuple):
        info = info[1]
    elif info is True:
        info = sys.exc_info()[1]
    return info if isinstance(info, BaseException) else None


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
