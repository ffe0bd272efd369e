"""The table of a benchmark: medians with their spread, most of them ratios to something in the same run."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, Self


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some measurements with their 10th and 90th percentile."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """The spread of at least one value."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        tenths = statistics.quantiles(values, n=10, method="inclusive")
        return cls(statistics.median(values), tenths[0], tenths[-1])

    @classmethod
    def of_ratios(cls, ours: Sequence[float], floor: Sequence[float]) -> Self:
        """The spread of our value divided by the floor's, round by round.

        Both values of a ratio are from the same round, so that other work on the machine slows both. Raises
        ValueError if the numbers of rounds differ.
        """
        return cls.of([one / least for one, least in zip(ours, floor, strict=True)])


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. ``limit`` is for the median, None without one; ``unit`` is empty for a ratio."""

    what: str
    spread: Spread
    limit: float | None
    unit: str = ""

    @property
    def holds(self) -> bool:
        """Whether the limit is met."""
        return self.limit is None or self.spread.median <= self.limit

    def cells(self) -> tuple[str, ...]:
        """The line's cells as text."""
        unit = f" {self.unit}" if self.unit else ""
        low, high = self.spread.low, self.spread.high
        return (
            self.what,
            f"{self.spread.median:.2f}{unit}",
            "" if low == high else f"{low:.2f} to {high:.2f}{unit}",
            "" if self.limit is None else f"{self.limit:g}{unit}",
            "" if self.limit is None else "yes" if self.holds else "NO",
        )


def lines(table: Sequence[Row], median: str) -> list[str]:
    """The table as lines of Markdown; ``median`` heads the column of the medians."""
    cells = [("what", median, "10th to 90th percentile", "limit", "met"), *(row.cells() for row in table)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    heads, *rows = (
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in cells
    )
    return [heads, "|" + "|".join("-" * (width + 2) for width in widths) + "|", *rows]


def finish(table: Sequence[Row], kubernetes: str, median: str = "times the floor") -> NoReturn:
    """Print the table and the machine on which it was made; the process ends with 1 if a limit is not met."""
    print("\n".join(lines(table, median)))
    print(f"\n{on_this_machine(kubernetes)}")
    sys.exit(0 if all(row.holds for row in table) else 1)


def on_this_machine(kubernetes: str) -> str:
    """Where the figures were taken."""
    linux, python = platform.release(), platform.python_version()
    return f"Kubernetes {kubernetes}, {os.cpu_count()} cores, Linux {linux}, Python {python}."
