"""Two instances of the plugin serve a node at once, as in a rolling update: what one holds, both know."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.processes.every_kind import KINDS, MADE_GPU, Kind, put_claim
from tests.processes.two_instances import EARLIER, LATER, TwoInstances, side_by_side

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proto import dra_v1_pb2 as v1

OF = {kind.name: kind for kind in KINDS}


@pytest.fixture(scope="module")
def running() -> Iterator[TwoInstances]:
    """Both plugins on one node, with one MPS supervisor."""
    with side_by_side() as node:
        yield node


@pytest.fixture
def both(running: TwoInstances) -> Iterator[TwoInstances]:
    """The same, and every test leaves the node as it found it."""
    yield running
    running.assert_all_is_put_back()


def claim_of(both: TwoInstances, kind: Kind) -> v1.Claim:
    """A new claim of a kind."""
    uid = str(uuid.uuid4())
    return put_claim(both.node, kind, uid, f"claim-{uid}")


def test_what_claims_have_for_themselves_is_refused_to_others_until_it_is_let_go(both: TwoInstances) -> None:
    kinds = [OF[name] for name in ("whole", "static", "partition", "own-mps", "partition-own-mps")]
    held = [claim_of(both, kind) for kind in kinds]
    waiting = [claim_of(both, replace(kind, sharing={})) for kind in kinds]
    both.prepare(EARLIER, *held)

    refusals = both.refused(LATER, *waiting)

    assert all("is still held by" in refusal for refusal in refusals)
    both.unprepare(EARLIER, *held)
    both.prepare(LATER, *waiting)
    both.unprepare(EARLIER, *waiting)


def test_partitions_that_overlap_are_refused_and_others_are_made_beside(both: TwoInstances) -> None:
    held = claim_of(both, OF["partition"])
    both.prepare(EARLIER, held)
    made = both.made_for_claims()
    overlapping = claim_of(both, Kind("larger", MADE_GPU, "-mig-3g-40gb-4"))
    whole = claim_of(both, Kind("whole", MADE_GPU))
    beside = claim_of(both, OF["layout-partition"])

    for refusal in both.refused(LATER, overlapping, whole):
        assert "is still held by" in refusal
    both.prepare(LATER, beside)
    assert len(both.made_for_claims()) == 2
    both.unprepare(EARLIER, beside)
    assert both.made_for_claims() == made
    both.unprepare(LATER, held)


@pytest.mark.parametrize("name", ["mps-share", "static-mps-share", "partition-mps-share"])
def test_shares_that_both_gave_away_have_one_daemon_that_ends_with_the_last(
    both: TwoInstances, name: str
) -> None:
    one, two = claim_of(both, OF[name]), claim_of(both, OF[name])
    both.prepare(EARLIER, one)
    gpus, daemons, records = both.gpus(), both.daemons(), both.records()
    assert len(daemons) == 1
    both.prepare(LATER, two)
    assert (both.gpus(), both.daemons(), both.records()) == (gpus, daemons, records)

    both.unprepare(LATER, one)

    assert (both.gpus(), both.daemons(), both.records()) == (gpus, daemons, records)
    both.unprepare(EARLIER, two)


def test_a_time_slice_that_one_has_set_stays_until_the_last_share_is_let_go(both: TwoInstances) -> None:
    kind = OF["time-sliced-share"]
    one, two = claim_of(both, kind), claim_of(both, kind)
    both.prepare(EARLIER, one)
    sliced = both.gpus()
    assert sliced != both.before
    by_mps = claim_of(both, replace(kind, suffix="-mps-4", sharing={}))
    (other_strategy,) = both.refused(LATER, by_mps)
    assert "is still held by" in other_strategy
    both.prepare(LATER, two)

    both.unprepare(LATER, one)

    assert both.gpus() == sliced
    both.unprepare(EARLIER, two)
