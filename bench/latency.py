"""Times prepare and unprepare of a plugin over claims that are there already."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.kubelet_calls import Plugin
from proto import dra_v1_pb2 as pb

ROUNDS = 60
"""Single calls are measured so often; what is reported is their median."""

BURSTS = 10
CROWDS = 4
_WARM_UP = 5


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds: medians over the rounds, the bursts being the time until the last answer."""

    prepare: float
    again: float
    unprepare: float
    eight_at_once: float
    all_at_once: float


def measure(
    plugins: Sequence[Plugin], eight: Sequence[pb.Claim], many: Sequence[pb.Claim]
) -> tuple[Latency, ...]:
    """Time single claims, eight claims at once on eight GPUs, and ``many`` at once, for each plugin.

    The plugins take turns, so that whatever else the machine does meets all of them. What is prepared
    is unprepared again.
    """
    singles: list[list[tuple[float, float, float]]] = [[] for _ in plugins]
    for turn in range(-_WARM_UP, ROUNDS):
        claim = eight[turn % len(eight)]
        for plugin, found in zip(plugins, singles, strict=True):
            times = (plugin.prepare(claim), plugin.prepare(claim), plugin.unprepare(claim))
            if turn >= 0:  # the first ones warm up connections and caches on both sides
                found.append(times)
    bursts = _bursts(plugins, eight, BURSTS)
    crowds = _bursts(plugins, many, CROWDS)
    return tuple(
        Latency(
            statistics.median(first for first, _, _ in found),
            statistics.median(again for _, again, _ in found),
            statistics.median(back for _, _, back in found),
            statistics.median(burst),
            statistics.median(crowd),
        )
        for found, burst, crowd in zip(singles, bursts, crowds, strict=True)
    )


def _bursts(plugins: Sequence[Plugin], claims: Sequence[pb.Claim], count: int) -> list[list[float]]:
    found: list[list[float]] = [[] for _ in plugins]
    for _ in range(count):
        for plugin, times in zip(plugins, found, strict=True):
            times.append(plugin.at_once(plugin.prepare, claims))
            plugin.at_once(plugin.unprepare, claims)
    return found
