"""Plugins take turns over the same number of claims, and give everything back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proto import dra_v1_pb2 as pb
from tools.bench.latency import CLAIMS_PER_ROUND, Contender, Latency, Rounds, measure
from tools.bench.table import Spread

CLAIMS = tuple(pb.Claim(namespace="bench", name=f"claim-{n}", uid=f"uid-{n}") for n in range(12))


class TimedPlugin:
    """A plugin that takes ``milliseconds`` for a first prepare, half of it again, a quarter to unprepare."""

    def __init__(self, name: str, milliseconds: float, called: list[str]) -> None:
        self.held: set[str] = set()
        self._name = name
        self._milliseconds = milliseconds
        self._called = called

    def prepare(self, claim: pb.Claim) -> float:
        self._called.append(self._name)
        known = claim.uid in self.held
        self.held.add(claim.uid)
        return self._milliseconds / (2 if known else 1)

    def unprepare(self, claim: pb.Claim) -> float:
        self.held.remove(claim.uid)
        return self._milliseconds / 4

    def at_once(self, work: Callable[[pb.Claim], float], claims: Sequence[pb.Claim]) -> float:
        return sum(work(claim) for claim in claims)


def test_every_figure_is_taken_in_each_round_and_nothing_stays_prepared() -> None:
    plugin = TimedPlugin("ours", 8.0, [])

    (found,) = measure([Contender(plugin, CLAIMS)], Rounds(singles=3, bursts=2, crowds=1, pause_seconds=0))

    assert found == Latency(
        prepare=(8.0,) * 3,
        again=(4.0,) * 3,
        unprepare=(2.0,) * 3,
        eight_at_once=(8.0 * CLAIMS_PER_ROUND,) * 2,
        all_at_once=(8.0 * len(CLAIMS),),
    )
    assert plugin.held == set()


def test_plugins_take_turns_claim_by_claim_and_each_comes_first_as_often_as_the_other() -> None:
    called: list[str] = []
    contenders = [Contender(TimedPlugin(name, 1.0, called), CLAIMS) for name in ("a", "b")]

    measure(contenders, Rounds(singles=1, bursts=1, crowds=1, pause_seconds=0))

    # Of each claim's turn both plugins have two calls; the warm-up is a round like the others.
    turns = [called[start : start + 4] for start in range(0, 2 * 4 * CLAIMS_PER_ROUND, 4)]
    there, back = ["a", "a", "b", "b"], ["b", "b", "a", "a"]
    assert turns == [there, back] * CLAIMS_PER_ROUND


def test_one_plugin_beside_another_is_the_ratio_of_their_rounds() -> None:
    slow = [Contender(TimedPlugin(name, time, []), CLAIMS) for name, time in (("new", 3.0), ("old", 4.0))]

    new, old = measure(slow, Rounds(singles=2, bursts=2, crowds=2, pause_seconds=0))

    assert new.beside(old) == dict.fromkeys(
        ("prepare", "again", "unprepare", "eight_at_once", "all_at_once"), Spread(0.75, 0.75, 0.75)
    )
