"""Two instances of the plugin serve a node at once, as in a rolling update: what one holds, both know."""

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from proto import dra_v1_pb2 as v1
from tests.processes.every_kind import KINDS, Kind, put_claim
from tests.processes.two_instances import EARLIER, LATER, TwoInstances, side_by_side

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


@pytest.mark.parametrize(
    "name", ["mps-share", "static-mps-share", "partition-mps-share", "time-sliced-share"]
)
def test_what_shares_that_both_gave_away_need_is_there_once_until_the_last_has_gone(
    both: TwoInstances, name: str
) -> None:
    one, two = claim_of(both, OF[name]), claim_of(both, OF[name])
    both.prepare(EARLIER, one)
    set_up = both.gpus(), both.daemons(), both.records()
    assert len(both.daemons()) == ("mps" in name)
    both.prepare(LATER, two)
    assert (both.gpus(), both.daemons(), both.records()) == set_up

    both.unprepare(LATER, one)

    assert (both.gpus(), both.daemons(), both.records()) == set_up
    both.unprepare(EARLIER, two)
