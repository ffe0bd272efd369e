"""Measures how long several plugins take to prepare and unprepare claims; the plugins take turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from proto import dra_v1_pb2 as pb
from tools.bench.kubelet_calls import Plugin
from tools.bench.table import Spread

CLAIMS_PER_ROUND = 8
"""So many claims are prepared one by one; each has a GPU of its own."""

_SINGLES, _BURSTS, _CROWDS, _WARM_UP = 40, 20, 16, 1
"""Rounds of single claims, of eight at once, of all at once, and those of each that do not count."""

# A turn begins after a pause, in which work that the last turn caused ends: a controller that sees a claim
# works for some more milliseconds, and would slow down the other plugin's turn.
_PAUSE_SECONDS = 0.03


@dataclass(frozen=True, slots=True)
class Contender:
    """A plugin with the claims of its node. The first eight are also prepared one by one."""

    plugin: Plugin
    claims: Sequence[pb.Claim]


@dataclass(frozen=True, slots=True)
class Latency:
    """The milliseconds that one plugin took, round by round.

    For single calls it is the median of the round's eight claims, for calls at once the time until the last
    answer.
    """

    prepare: tuple[float, ...]
    again: tuple[float, ...]
    unprepare: tuple[float, ...]
    eight_at_once: tuple[float, ...]
    all_at_once: tuple[float, ...]

    def beside(self, other: Latency) -> dict[str, Spread]:
        """The ratios of this plugin's times to another's: name of the field -> ratios."""
        names = [field.name for field in fields(self)]
        return {name: Spread.of_ratios(getattr(self, name), getattr(other, name)) for name in names}


def measure(*contenders: Contender) -> tuple[Latency, ...]:
    """Time single claims, eight claims at once on eight GPUs, and all of them at once, for each plugin.

    The plugins take turns claim by claim, so that other work on the machine slows all of them alike. Every
    prepared claim is unprepared again. The first round of each kind does not count, because connections and
    caches warm up in it.
    """
    taken = _Turns(contenders)
    singles = [_single_round(taken) for _ in range(_WARM_UP + _SINGLES)][_WARM_UP:]
    bursts = [_burst(taken, CLAIMS_PER_ROUND) for _ in range(_WARM_UP + _BURSTS)][_WARM_UP:]
    crowds = [_burst(taken, None) for _ in range(_WARM_UP + _CROWDS)][_WARM_UP:]
    return tuple(
        Latency(
            tuple(found[index][0] for found in singles),
            tuple(found[index][1] for found in singles),
            tuple(found[index][2] for found in singles),
            tuple(found[index] for found in bursts),
            tuple(found[index] for found in crowds),
        )
        for index in range(len(contenders))
    )


class _Turns:
    """Lets the plugins take turns, in the opposite order every second time."""

    def __init__(self, contenders: Sequence[Contender]) -> None:
        self._order = list(enumerate(contenders))

    def __len__(self) -> int:
        """How many plugins there are."""
        return len(self._order)

    def next(self) -> Iterator[tuple[int, Contender]]:
        """The plugins with their index, each when it may begin."""
        order = self._order
        # The first of one turn is the last of the next, so that no plugin always follows the same one.
        self._order = order[::-1]
        for index, one in order:
            time.sleep(_PAUSE_SECONDS)
            yield index, one


def _single_round(turns: _Turns) -> list[tuple[float, float, float]]:
    """For each plugin: prepare, prepare again, unprepare."""
    times: list[list[tuple[float, float, float]]] = [[] for _ in range(len(turns))]
    for which in range(CLAIMS_PER_ROUND):
        for index, one in turns.next():
            claim = one.claims[which]
            times[index].append(
                (one.plugin.prepare(claim), one.plugin.prepare(claim), one.plugin.unprepare(claim))
            )
    return [
        (
            statistics.median(first for first, _, _ in found),
            statistics.median(again for _, again, _ in found),
            statistics.median(back for _, _, back in found),
        )
        for found in times
    ]


def _burst(turns: _Turns, count: int | None) -> list[float]:
    """For each plugin the time until so many claims, or all of them with None, are prepared."""
    times = [0.0] * len(turns)
    for index, one in turns.next():
        claims = one.claims[:count]
        times[index] = one.plugin.at_once(one.plugin.prepare, claims)
        one.plugin.at_once(one.plugin.unprepare, claims)
    return times
