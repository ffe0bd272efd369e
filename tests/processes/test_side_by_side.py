"""Two versions of the plugin serve a node at once, as in a rolling update: what one holds the other knows."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from tests.processes.every_kind import ALL_OF_FRACTIONAL, KINDS, MADE_GPU, Kind, put_claim
from tests.processes.two_versions import TwoVersions, Version, side_by_side

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proto import dra_v1_pb2 as v1

OF = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Pair:
    """A node with both plugins: in a test ``first`` is asked for claims before ``second``."""

    node: TwoVersions
    first: Version
    second: Version


@pytest.fixture(scope="module", params=[("released", "today"), ("today", "released")], ids=" ".join)
def running(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both plugins on one node, with the MPS supervisor of the second's version."""
    first, second = map(Version.named, request.param)
    with side_by_side(first, second, second) as node:
        yield Pair(node, first, second)


@pytest.fixture
def pair(running: Pair) -> Iterator[Pair]:
    """The same, and every test leaves the node as it found it."""
    yield running
    running.node.assert_all_is_put_back()


def claim_of(both: TwoVersions, kind: Kind) -> v1.Claim:
    """A new claim of a kind."""
    uid = str(uuid.uuid4())
    return put_claim(both.node, kind, uid, f"claim-{uid}")


def test_what_claims_have_for_themselves_is_refused_to_others_until_it_is_let_go(pair: Pair) -> None:
    both, first, second = pair.node, pair.first, pair.second
    kinds = [OF[name] for name in ("whole", "static", "partition", "own-mps", "partition-own-mps")]
    held = [claim_of(both, kind) for kind in kinds]
    waiting = [claim_of(both, replace(kind, sharing={})) for kind in kinds]
    both.prepare(first, *held)

    refusals = both.refused(second, *waiting)

    assert all("is still held by" in refusal for refusal in refusals), "the released version names the claim"
    both.unprepare(first, *held)
    both.prepare(second, *waiting)
    both.unprepare(first, *waiting)


def test_partitions_that_overlap_are_refused_and_others_are_made_beside(pair: Pair) -> None:
    both, first, second = pair.node, pair.first, pair.second
    held = claim_of(both, OF["partition"])
    both.prepare(first, held)
    made = both.made_for_claims()
    overlapping = claim_of(both, Kind("larger", MADE_GPU, "-mig-3g-40gb-4"))
    whole = claim_of(both, Kind("whole", MADE_GPU))
    beside = claim_of(both, OF["layout-partition"])

    for refusal in both.refused(second, overlapping, whole):
        assert "is still held by" in refusal
    both.prepare(second, beside)
    assert len(both.made_for_claims()) == 2
    both.unprepare(first, beside)
    assert both.made_for_claims() == made
    both.unprepare(second, held)


@pytest.mark.parametrize("name", ["mps-share", "static-mps-share", "partition-mps-share"])
def test_shares_that_both_gave_away_have_one_daemon_that_ends_with_the_last(pair: Pair, name: str) -> None:
    both, first, second = pair.node, pair.first, pair.second
    one, two = claim_of(both, OF[name]), claim_of(both, OF[name])
    both.prepare(first, one)
    gpus, daemons, records = both.gpus(), both.daemons(), both.records()
    assert len(daemons) == 1
    both.prepare(second, two)
    assert (both.gpus(), both.daemons(), both.records()) == (gpus, daemons, records)

    both.unprepare(second, one)

    assert (both.gpus(), both.daemons(), both.records()) == (gpus, daemons, records)
    both.unprepare(first, two)


def test_a_time_slice_that_one_has_set_stays_until_the_last_share_is_let_go(pair: Pair) -> None:
    both, first, second = pair.node, pair.first, pair.second
    kind = OF["time-sliced-share"]
    one, two = claim_of(both, kind), claim_of(both, kind)
    both.prepare(first, one)
    sliced = both.gpus()
    assert sliced != both.before
    by_mps = claim_of(both, replace(kind, suffix="-mps-4", sharing={}))
    (other_strategy,) = both.refused(second, by_mps)
    assert "is still held by" in other_strategy
    both.prepare(second, two)

    both.unprepare(second, one)

    assert both.gpus() == sliced
    both.unprepare(first, two)


def test_who_has_all_of_a_fractional_gpu_keeps_shares_off(pair: Pair) -> None:
    both, first, second = pair.node, pair.first, pair.second
    everything, some = claim_of(both, ALL_OF_FRACTIONAL), claim_of(both, OF["fractional"])
    both.prepare(first, everything)
    assert both.daemons() == {}
    assert "is for one claim alone" in both.refused(second, some)[0]
    both.unprepare(second, everything)
    both.prepare(second, some)
    assert "is for one claim alone" in both.refused(first, claim_of(both, ALL_OF_FRACTIONAL))[0]
    both.unprepare(first, some)
