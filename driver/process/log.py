"""Writes one JSON object per line to stderr, with the operation's id on every line of a call.

``event`` is a short phrase in lower case; everything that varies is a field of its own. Lines of libraries
that use the standard logging module get the same form.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from random import getrandbits
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Literal, TextIO, cast, get_args

from driver.errors import DriverError, outcome_of

# structlog imports rich wherever it is installed, for tracebacks in colour: a quarter of what a start takes,
# and no process prints any. With None in its place rich counts as not installed.
_modules = cast("dict[str, ModuleType | None]", sys.modules)
_has_rich = _modules.setdefault("rich", None) is not None
import structlog  # noqa: E402 - see above

if not _has_rich:
    del _modules["rich"]

# gRPC's C core writes plain text to stderr, such as each GOAWAY. It reads this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

if TYPE_CHECKING:
    from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

Level = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = get_args(Level)

_SECRET_KEYS = frozenset({"authorization", "cookie", "password", "secret", "token"})
_SECRET_TEXT = re.compile(
    r"(Bearer )[^\s\"\\]+"
    r"|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+"  # a JSON web token
)
_LIBRARIES_LEVEL = logging.WARNING

# The fields of the operation that this thread is in. Each call of the kubelet sets them, and structlog's own
# functions have a variable for each field.
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

    # structlog calls the method named after the level on whatever the logger factory returned.
    msg = debug = info = warning = error = critical = exception = write


class _LibraryHandler(logging.Handler):
    """Writes the standard logging records of libraries in the form of our own lines."""

    def __init__(self, lines: _Lines, processors: list[Processor]) -> None:
        super().__init__()
        self._lines = lines
        self._processors = processors

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record as one line."""
        try:
            event: EventDict = {"event": record.getMessage(), "module": record.name}
        # The library's arguments may not fit its own format string.
        except (TypeError, ValueError):
            self.handleError(record)
            return
        if record.exc_info:
            event["exc_info"] = record.exc_info
        rendered: object = event
        for process in self._processors:
            rendered = process(None, record.levelname.lower(), rendered)  # type: ignore[arg-type]  # a chain
        self._lines.write(str(rendered))


def configure(level: Level, stream: TextIO | None = None) -> None:
    """Log lines of ``level`` and above to ``stream``, by default stderr; may be called again."""
    lines = _Lines(stream if stream is not None else sys.stderr)
    processors: list[Processor] = [
        _with_operation,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        _render,
    ]
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda *_args: lines,
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    # Called again, by a test or after the flags are read: do not write each line twice.
    for handler in [one for one in root.handlers if isinstance(one, _LibraryHandler)]:
        root.removeHandler(handler)
    root.addHandler(_LibraryHandler(lines, processors))
    # Libraries say too much below warning, whatever our own level is.
    root.setLevel(max(threshold, _LIBRARIES_LEVEL))


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose lines carry ``module: name``; may be made before ``configure`` is called."""
    logger: FilteringBoundLogger = structlog.get_logger(module=name)
    return logger


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
    # Bind once: before that, structlog's lazy logger assembles a new one for each line.
    log = _log.bind()
    token = _fields.set({**outer, **bound, **within, "op": op_id, "operation": name})
    try:
        log.debug("operation begins")
        try:
            yield op_id
        except Exception as error:
            _log_failure(error, _milliseconds_since(started))
            raise
        log.debug("operation ended", outcome="ok", duration_ms=_milliseconds_since(started))
    finally:
        _fields.reset(token)


def _with_operation(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The line with the fields of the operation around it."""
    return {**_fields.get(), **event}


def _log_failure(error: Exception, duration_ms: float) -> None:
    outcome = outcome_of(error)
    if outcome == "internal":
        _log.error("operation failed", outcome=outcome, duration_ms=duration_ms, exc_info=error)
    else:
        text = error.logged if isinstance(error, DriverError) else str(error)
        _log.warning("operation failed", outcome=outcome, duration_ms=duration_ms, error=text)


def _milliseconds_since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)


def _render(logger: WrappedLogger, method: str, event: EventDict) -> str:
    # time, level and event come first, so that people can read raw lines.
    first = {key: event.pop(key) for key in ("time", "level", "event") if key in event}
    line = str(_as_json(logger, method, {**first, **_without_secrets(event)}))
    # Last, over the whole line: a token may also be in the middle of a library's message.
    return _SECRET_TEXT.sub(lambda match: (match[1] or "") + "***", line)


def _without_secrets(fields: Mapping[str, object]) -> dict[str, object]:
    return {
        key: "***"
        if str(key).lower() in _SECRET_KEYS
        else _without_secrets(value)
        if isinstance(value, dict)
        else value
        for key, value in fields.items()
    }


_as_json = structlog.processors.JSONRenderer(default=str)
_log = get_logger(__name__)
