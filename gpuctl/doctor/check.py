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


class _SkippedError(Exception):
    """A check asked for something that is not there or could not be read. The only argument says why."""


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
        """What the check finds; skipped if something that it needs could not be read, or is not there."""
        try:
            return self.find(seen)
        except _SkippedError as error:
            return skipped(str(error))


def check(find: Callable[[Seen], Finding]) -> Check[Seen]:
    """Make a check of a function, by its name and docstring: what it looks at, and below when it fails."""
    looks_at, _, fails = str(find.__doc__).partition("\n\n")
    fails_when = " ".join(fails.split()).removeprefix("Fails if ").replace("Never fails", "never").rstrip(".")
    name = find.__name__.strip("_").replace("_", "-")
    return Check(name, " ".join(looks_at.split()).rstrip("."), fails_when, find)


def require(value: Value | Unread, missing: str = "") -> Value:
    """The value; the running check ends here, and is skipped, if it could not be read.

    It also ends if there is no value, and ``missing`` says what that means.
    """
    if isinstance(value, Unread):
        raise _SkippedError(value.why)
    if missing and not value:
        raise _SkippedError(missing)
    return value


@dataclass(frozen=True, slots=True)
class Result:
    """What one check found at one place."""

    place: str
    """The place that was checked: cluster, node/NAME, node for the one that it ran on, or class/NAME."""

    check: str
    """The name of the check; the page about the doctor lists them."""

    status: Status
    """skipped: it could not be checked, or there is nothing to check."""

    message: str
    """What was found, for people."""

    way_out: str | None = None
    """What to do about it."""

    details: tuple[str, ...] = ()
    """The affected objects, each in a line."""


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
