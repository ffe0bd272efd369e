"""One area that is compared with Kubernetes: its cases, and how answers are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

Case = dict[str, Any]
"""One request to the oracle: ``op`` and its inputs, as envtest/real/go/kubernetes/oracle reads them.

``kubernetes``, which the oracle does not read, is its version if that is not ``RECORDED``.
"""

Answer = dict[str, Any]


RECORDED = "1.37"
"""The version of Kubernetes whose answers are recorded."""


def version_of(case: Case) -> tuple[int, int]:
    """The version whose rules count for a case, such as (1, 37)."""
    major, minor = case.get("kubernetes", RECORDED).split(".")
    return int(major), int(minor)


class Asked(Protocol):
    """Kubernetes, which answers cases: the oracle, or a running API server."""

    def ask(self, cases: Iterable[Case]) -> Iterator[tuple[Case, Answer]]:
        """Each case with its answer, in order."""


@dataclass(frozen=True, slots=True)
class Area:
    """One area that is compared.

    ``written`` are cases that a person wrote, each for one rule. ``random`` makes a case, the same one from
    the same seed. ``difference`` describes how our answer to a case differs
    from the oracle's in a way that a user could see, None if it does not. ``start`` starts what answers the
    cases of the area instead of the oracle; its argument is the path of the oracle, beside which the programs
    of Kubernetes lie. ``written_only``: there are no random cases; else so many are
    ``recorded`` beside the written ones.
    """

    name: str
    written: Callable[[], Sequence[Case]]
    random: Callable[[Random], Case]
    difference: Callable[[Case, Answer], str | None]
    start: Callable[[Path], AbstractContextManager[Asked]] | None = None
    written_only: bool = False
    recorded: int = 400
