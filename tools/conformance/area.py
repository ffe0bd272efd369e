"""One area that is compared with Kubernetes: its cases, and how answers are compared."""

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
    """One area that is compared.

    ``written`` are cases that a person wrote, each for one rule. ``random`` makes a case, the same one from
    the same seed. ``difference`` describes how our answer to a case differs from the oracle's in a way that
    a user could see, None if it does not.
    """

    name: str
    written: Callable[[], Sequence[Case]]
    random: Callable[[Random], Case]
    difference: Callable[[Case, Answer], str | None]
