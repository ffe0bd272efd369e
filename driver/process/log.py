"""Writes one JSON object a line to stderr, with the operation's id on every line of a call.

``event`` is a short phrase in lower case; everything that varies is a field beside it. Lines of
libraries that use the standard logging module come out in the same form.
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
from typing import TYPE_CHECKING, Literal, TextIO, get_args

import structlog
from structlog.contextvars import bound_contextvars, get_contextvars, merge_contextvars

from driver.errors import DriverError, outcome_of

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


class _Lines:
    """Writes whole lines to a stream from many threads; a line that cannot be written is dropped.

    A log whose reader has gone must not make a claim fail.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def write(self, line: str) -> None:
        """Write one line."""
        try:
            with self._lock:
                self._stream.write(line + "\n")
                self._stream.flush()
        except (OSError, ValueError):
            return

    msg = debug = info = warning = error = critical = exception = write


class _LibraryHandler(logging.Handler):
    """Gives the standard logging records of libraries the form of our own lines."""

    def __init__(self, lines: _Lines, processors: list[Processor]) -> None:
        super().__init__()
        self._lines = lines
        self._processors = processors

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record as one line."""
        try:
            event: EventDict = {"event": record.getMessage(), "module": record.name}
        except (TypeError, ValueError):  # the library's arguments do not fit its own format
            self.handleError(record)
            return
        if record.exc_info:
            event["exc_info"] = record.exc_info
        rendered: object = event
        for process in self._processors:
            rendered = process(None, record.levelname.lower(), rendered)  # type: ignore[arg-type]  # a chain
        self._lines.write(str(rendered))


def configure(level: Level, stream: TextIO | None = None) -> None:
    """Log lines of ``level`` and above to ``stream``, stderr when absent; may be called again."""
    lines = _Lines(stream if stream is not None else sys.stderr)
    processors: list[Processor] = [
        merge_contextvars,
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
    # gRPC's core writes lines that are no JSON to stderr, unless it is told to say errors alone.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, _LibraryHandler)]:
        root.removeHandler(handler)
    root.addHandler(_LibraryHandler(lines, processors))
    root.setLevel(max(threshold, _LIBRARIES_LEVEL))


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose lines carry ``module: name``; may be made before ``configure`` is called."""
    logger: FilteringBoundLogger = structlog.get_logger(module=name)
    return logger


@contextmanager
def operation(name: str, **bound: object) -> Iterator[str]:
    """Put a fresh operation id, and ``bound``, on every line that this thread logs inside the block.

    Gives the id. Logs begin and end at debug; a DriverError at warning, any other exception with
    its traceback at error, and lets both pass. Inside another operation the line also carries the
    outer one's id as ``within``. Threads that are started inside need ``contextvars.copy_context``.
    """
    op_id = os.urandom(4).hex()
    outer = get_contextvars().get("op")
    if outer is not None:
        bound["within"] = outer
    started = time.perf_counter()
    log = _log.bind()  # once: the logger that has to be configured first binds anew at each line
    with bound_contextvars(op=op_id, operation=name, **bound):
        log.debug("operation begins")
        try:
            yield op_id
        except Exception as error:
            _log_failure(error, _milliseconds_since(started))
            raise
        log.debug("operation ended", outcome="ok", duration_ms=_milliseconds_since(started))


def _log_failure(error: Exception, duration_ms: float) -> None:
    outcome = outcome_of(error)
    if outcome == "internal":
        _log.error("operation failed", outcome=outcome, duration_ms=duration_ms, exc_info=error)
    else:
        said = error.logged if isinstance(error, DriverError) else str(error)
        _log.warning("operation failed", outcome=outcome, duration_ms=duration_ms, error=said)


def _milliseconds_since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)


def _render(logger: WrappedLogger, method: str, event: EventDict) -> str:
    first = {key: event.pop(key) for key in ("time", "level", "event") if key in event}
    line = str(_as_json(logger, method, {**first, **_without_secrets(event)}))
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
