"""What a check is, and what it finds: a question about something seen, and an answer in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Status = Literal["ok", "warn", "fail", "skipped"]
"""``skipped``: nobody could look, or there is nothing to look at; the message says which."""

Seen = TypeVar("Seen")


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: one line, what to do about it, and the things that are meant, each in a line."""

    status: Status
    message: str
    way_out: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check(Generic[Seen]):
    """A question about something seen. ``looks_at`` and ``fails_when`` are for the page of all checks."""

    name: str
    looks_at: str
    fails_when: str
    look: Callable[[Seen], Finding]


@dataclass(frozen=True, slots=True)
class Result:
    """What one check found at one place: ``cluster``, or ``node/<name>``."""

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
    """All is as it has to be."""
    return Finding("ok", message, details=tuple(details))


def warn(message: str, way_out: str, details: Sequence[str] = ()) -> Finding:
    """Something is not as it should be, and GPUs are handed out nevertheless."""
    return Finding("warn", message, way_out, tuple(details))


def fail(message: str, way_out: str, details: Sequence[str] = ()) -> Finding:
    """Something keeps pods from their GPUs, or gives them to those who may not have them."""
    return Finding("fail", message, way_out, tuple(details))


def skipped(message: str, way_out: str = "") -> Finding:
    """It could not be looked at, or there is nothing to look at."""
    return Finding("skipped", message, way_out)


def counted(number: int, one: str, several: str | None = None) -> str:
    """A number with its noun: ``1 node``, ``3 nodes``."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"
