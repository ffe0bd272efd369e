"""One value of a series with its labels, made anew whenever the numbers are fetched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """``labels`` are exactly those that the table has for the series."""

    series: str
    labels: Mapping[str, str]
    value: float
