"""What can be compared with Kubernetes: a source of cases, and our own answer to each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

Case = dict[str, Any]
"""One request to the oracle: ``op`` and its inputs, as envtest/real/go/kubernetes/oracle reads them."""

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Area:
    """One kind of question.

    ``written`` are cases that a person thought of, each for a rule of its own. ``random`` makes one more
    from a source of chance, the same from the same seed. ``difference`` says in what our answer to a
    case differs from the oracle's, None where it does not; it compares what a user could see.
    """

    name: str
    written: Callable[[], Sequence[Case]]
    random: Callable[[Random], Case]
    difference: Callable[[Case, Answer], str | None]
