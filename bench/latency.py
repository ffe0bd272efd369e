"""Times prepare and unprepare of a plugin over claims that are there already."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.kubelet_calls import Plugin
from proto import dra_v1_pb2 as pb

ROUNDS = 40
"""Single calls are measured so often; what is reported is their median."""

BURSTS = 10


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds: medians over the rounds, the bursts being the time until the last answer."""

    prepare: float
    again: float
    unprepare: float
    eight_at_once: float
    all_at_once: float


def measure(
    plugin: Plugin, claim: Callable[[int], pb.Claim], eight: Sequence[pb.Claim], many: Sequence[pb.Claim]
) -> Latency:
    """Time single claims, eight claims at once on eight GPUs, and ``many`` at once.

    ``claim(n)`` gives the claim of the n-th round; whatever is prepared is unprepared again.
    """
    first: list[float] = []
    again: list[float] = []
    back: list[float] = []
    for turn in range(-3, ROUNDS):
        one = claim(turn % len(eight))
        times = (plugin.prepare(one), plugin.prepare(one), plugin.unprepare(one))
        if turn >= 0:  # the first ones warm up connections and caches on both sides
            for found, milliseconds in zip((first, again, back), times, strict=True):
                found.append(milliseconds)
    bursts = [_burst(plugin, eight) for _ in range(BURSTS)]
    crowds = [_burst(plugin, many) for _ in range(max(3, BURSTS // 3))]
    return Latency(
        statistics.median(first),
        statistics.median(again),
        statistics.median(back),
        statistics.median(bursts),
        statistics.median(crowds),
    )


def _burst(plugin: Plugin, claims: Sequence[pb.Claim]) -> float:
    milliseconds = plugin.at_once(plugin.prepare, claims)
    plugin.at_once(plugin.unprepare, claims)
    return milliseconds
