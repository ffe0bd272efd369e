"""What a series of the driver's metrics is: the form of a row of the table, before any number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Process = Literal["kubeletplugin", "controller", "webhook"]
"""The processes that serve numbers."""

_UNITS = {
    "_seconds": "seconds",
    "_bytes": "bytes",
    "_ratio": "0 to 1",
    "_watts": "watts",
    "_celsius": "°C",
    "_total": "a count since the start",
    "_info": "always 1",
}
"""What the end of a name says of its unit (prometheus.io/docs/practices/naming)."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series as it is served.

    ``name`` is whole, ``_total`` of a counter included. ``help`` is one sentence. ``labels`` are all that it
    has. ``processes`` show it. ``bound`` says in words how many there can be of it at one time. ``buckets``
    are the upper limits of a histogram in seconds, empty for others. ``unit_word`` is the unit where the
    name does not tell.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    processes: tuple[Process, ...]
    labels: tuple[str, ...] = ()
    bound: str = "1"
    buckets: tuple[float, ...] = ()
    unit_word: str = ""

    @property
    def unit(self) -> str:
        """What a value of it is counted in."""
        if self.unit_word:
            return self.unit_word
        found = (unit for end, unit in _UNITS.items() if self.name.endswith(end))
        return next(found, "a number")


@dataclass(frozen=True, slots=True)
class Table:
    """All series, by name."""

    rows: tuple[Series, ...]

    def __getitem__(self, name: str) -> Series:
        """The series of this name; raises KeyError."""
        for one in self.rows:
            if one.name == name:
                return one
        raise KeyError(name)

    def of(self, process: Process | None) -> tuple[Series, ...]:
        """Those that a process shows; of None, all."""
        return tuple(one for one in self.rows if process is None or process in one.processes)
