"""Sorts how an operation ended into the few words that logs and metrics share."""

from __future__ import annotations

from typing import Literal, get_args

from driver.errors import DriverError

Outcome = Literal["ok", "retryable", "permanent", "internal"]
"""``retryable`` and ``permanent`` are DriverErrors of that kind, ``internal`` is a fault of ours."""

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


def outcome_of(error: BaseException | None) -> Outcome:
    """The word for an operation that ended with this error, or with none."""
    if error is None:
        return "ok"
    if isinstance(error, DriverError):
        return "retryable" if error.retryable else "permanent"
    return "internal"
