"""Defines what a check of the doctor is, and what it finds: one line, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from gpuctl.cli.unread import Unread

Status = Literal["ok", "warn", "fail", "skipped"]
"""``skipped``: it could not be checked, or there is nothing to check; the message says which."""

Seen = TypeVar("Seen")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: one line, what to do about it, and the things that it is about, a line for each."""

    status: Status
    message: str
    way_out: str = ""
    details: tuple[str, ...] = ()


class _NotReadError(Exception):
    """A check asked for something that could not be read. The only argument says why."""


@dataclass(frozen=True, slots=True)
class Check(Generic[Seen]):
    """A check of a cluster or a node. ``looks_at`` and ``fails_when`` are for docs/troubleshooting.md.

    ``find`` is called with all that was read; it gets at what it needs by ``require``.
    """

    name: str
    looks_at: str
    fails_when: str
    find: Callable[[Seen], Finding]

    def look(self, seen: Seen) -> Finding:
        """What the check finds; skipped if something that it needs could not be read."""
        try:
            return self.find(seen)
        except _NotReadError as error:
            return skipped(str(error))


def check(name: str, looks_at: str, fails_when: str) -> Callable[[Callable[[Seen], Finding]], Check[Seen]]:
    """Make a check of the function below; the arguments are the fields of ``Check``."""
    return lambda find: Check(name, looks_at, fails_when, find)


def require(value: Value | Unread) -> Value:
    """The value; if it could not be read, the running check ends here, and is skipped for that reason."""
    if isinstance(value, Unread):
        raise _NotReadError(value.why)
    return value


@dataclass(frozen=True, slots=True)
class Result:
    """What one check found at one place: ``cluster``, ``node/<name>``, or ``class/<name>``."""

    place: str
    check: str
    status: Status
    message: str
    way_out: str | None = None
    details: tuple[str, ...] = ()


def run_checks(place: str, checks: Iterable[Check[Seen]], seen: Seen) -> tuple[Result, ...]:
    """The results of the checks, in their order."""
    found = ((check, check.look(seen)) for check in checks)
    return tuple(
        Result(place, check.name, one.status, one.message, one.way_out or None, one.details)
        for check, one in found
    )


def ok(message: str, details: Sequence[str] = ()) -> Finding:
    """Nothing is wrong."""
    return Finding("ok", message, details=tuple(details))


def warn(message: str, way_out: str, details: Sequence[str] = ()) -> Finding:
    """Something is wrong, but GPUs are still handed out."""
    return Finding("warn", message, way_out, tuple(details))


def fail(message: str, way_out: str, details: Sequence[str] = ()) -> Finding:
    """Something keeps pods from their GPUs, or gives GPUs to pods that may not have them."""
    return Finding("fail", message, way_out, tuple(details))


def skipped(message: str, way_out: str = "") -> Finding:
    """It could not be checked, or there is nothing to check."""
    return Finding("skipped", message, way_out)


def counted(number: int, one: str, several: str | None = None) -> str:
    """A number with its noun: ``1 node``, ``3 nodes``."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"
