"""The claims are looked at only when a GPU waits for nothing else, and seldom."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from controller.publish.changeover import Changeover, Known, Seen, is_whole, published
from driver.devices.device import Taint
from driver.devices.taints import TAINT_CHANGING
from driver.errors import ApiError
from driver.kube.backoff import Backoff
from driver.policy.offers import Doubt, Offers
from tests.controller.mig_node import BALANCED, DYNAMIC, POOL, SMALL, WHOLE, names, offers, slices, taint_keys

NOBODY: frozenset[str] = frozenset()
CLAIMED = frozenset({"gpu-0000-1b-00-0-mig-1g-10gb-6"})


def later() -> Backoff:
    """Waits between looks that no test reaches the end of."""
    return Backoff(2.0, 60.0)


class Claims:
    """The claims of a cluster, and how often they were listed."""

    def __init__(self, *answers: frozenset[str] | ApiError) -> None:
        self._answers = list(answers)
        self.looks = 0

    def allocated(self) -> frozenset[str]:
        self.looks += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, ApiError):
            raise answer
        return answer


class Pool:
    """What is stored of the pool, and what wants to change it; each step is written as it is."""

    def __init__(
        self,
        claims: Claims,
        *,
        stored: Offers,
        settle_seconds: float = 0.0,
        backoff: Backoff | None = None,
    ) -> None:
        self.claims = claims
        self.changeover = Changeover(POOL, claims.allocated, settle_seconds, backoff or later())
        self.known = Known()
        self.stored = slices(stored)

    def step(self, wanted: Offers, held: frozenset[str] = NOBODY, **how: Any) -> float | None:
        self.known = self.changeover.next_known(self.known, Seen(wanted, held, self.stored, **how))
        self.stored = slices(self.known.offers)
        return self.known.again_in_seconds(time.monotonic(), self.changeover.settle_seconds)

    def becomes(self, wanted: Offers) -> bool:
        return names(published(self.stored, POOL)[0]) == names(wanted.devices)


def test_nobody_looks_at_claims_while_nothing_goes_away() -> None:
    pool = Pool(Claims(NOBODY), stored=offers(SMALL))

    assert pool.step(offers(DYNAMIC)) is None
    assert pool.becomes(offers(DYNAMIC))
    assert pool.claims.looks == 0


def test_where_nothing_is_stored_the_look_comes_at_once() -> None:
    pool = Pool(Claims(NOBODY), stored=Offers((), ()), settle_seconds=3600.0)

    assert pool.step(offers(DYNAMIC)) is None
    assert pool.becomes(offers(DYNAMIC))
    assert pool.claims.looks == 1
    assert not pool.known.misses_a_claim


def test_where_nothing_is_stored_and_claims_cannot_be_listed_nothing_is_published_and_it_says_why() -> None:
    pool = Pool(Claims(ApiError("forbidden"), NOBODY), stored=Offers((), ()), backoff=Backoff(0.0, 0.0))

    assert pool.step(offers(DYNAMIC)) == 0.0
    assert published(pool.stored, POOL) == ((), ())
    assert "cannot read claims: forbidden" in pool.known.failure

    assert pool.step(offers(DYNAMIC)) is None
    assert pool.becomes(offers(DYNAMIC))
    assert not pool.known.failure


def test_claims_are_to_be_followed_where_one_has_what_nobody_publishes_and_it_is_looked_for_again() -> None:
    pool = Pool(Claims(CLAIMED), stored=Offers((), ()), backoff=Backoff(0.0, 0.0))

    assert pool.step(offers(BALANCED)) == 0.0
    assert pool.known.misses_a_claim
    assert {one.pci for one in published(pool.stored, POOL)[0]} == {offers(BALANCED).devices[-1].pci}

    pool.step(offers(BALANCED), avoided=CLAIMED)
    assert pool.becomes(offers(BALANCED))


def test_a_wipe_needs_no_look_where_all_comes_back_as_it_was() -> None:
    pool = Pool(Claims(NOBODY), stored=offers(DYNAMIC))
    pool.step(offers(DYNAMIC))

    pool.stored = []
    assert pool.step(offers(DYNAMIC)) is None

    assert pool.becomes(offers(DYNAMIC))
    assert pool.claims.looks == 0


@pytest.mark.parametrize("lost", [slice(None), slice(1, None)], ids=["all", "one of two slices"])
def test_a_change_outlives_a_wipe_of_the_slices(lost: slice) -> None:
    pool = Pool(Claims(CLAIMED), stored=offers(DYNAMIC))
    for _ in range(2):
        pool.step(offers(BALANCED))
    before = {one.name for one in published(pool.stored, POOL)[0]}

    del pool.stored[lost]
    pool.step(offers(BALANCED))

    assert {one.name for one in published(pool.stored, POOL)[0]} == before
    assert before >= CLAIMED


def test_a_new_controller_goes_on_to_wait_for_a_claim_on_what_nobody_publishes() -> None:
    unseen = "gpu-0000-1b-00-0-mig-2g-20gb-0"
    pool = Pool(Claims(frozenset({unseen})), stored=offers(SMALL))
    pool.stored[0]["spec"]["pool"]["resourceSliceCount"] = 2

    for _ in range(2):
        pool.known = Known()
        pool.step(offers(DYNAMIC))
        pool.step(offers(DYNAMIC))

    first = [one.name for one in published(pool.stored, POOL)[0] if one.name.startswith("gpu-0000-1b")]
    assert sorted(first) == [f"gpu-0000-1b-00-0-mig-1g-10gb-{place}" for place in range(3)]


def test_a_pool_of_which_a_slice_is_missing_is_known_in_part_only() -> None:
    stored = slices(offers(DYNAMIC))

    assert is_whole(stored, POOL)
    assert not any(is_whole(part, POOL) for part in ([], stored[1:], stored[:1], [*stored, stored[0]]))


def test_the_look_comes_only_after_the_taint_was_stored() -> None:
    pool = Pool(Claims(NOBODY), stored=offers(DYNAMIC))

    pool.step(offers(BALANCED))
    assert pool.claims.looks == 0
    assert taint_keys(published(pool.stored, POOL)[0]) == {(TAINT_CHANGING,)}

    assert pool.step(offers(BALANCED)) is None
    assert pool.claims.looks == 1
    assert pool.becomes(offers(BALANCED))


def test_the_look_waits_until_schedulers_have_seen_the_taint() -> None:
    pool = Pool(Claims(NOBODY), stored=offers(DYNAMIC), settle_seconds=3600.0)

    pool.step(offers(BALANCED))
    again = pool.step(offers(BALANCED))

    assert again is not None
    assert 3590 < again <= 3600
    assert pool.claims.looks == 0


def test_a_claim_is_looked_for_again_later_and_not_at_each_sync() -> None:
    pool = Pool(Claims(CLAIMED), stored=offers(DYNAMIC))
    pool.step(offers(BALANCED))
    again = pool.step(offers(BALANCED))
    pool.step(offers(BALANCED))

    assert again is not None
    assert 0.9 < again <= 2.0
    assert pool.claims.looks == 1
    assert not pool.becomes(offers(BALANCED))


def test_it_looks_again_until_the_claim_has_ended() -> None:
    pool = Pool(Claims(CLAIMED, CLAIMED, NOBODY), stored=offers(DYNAMIC), backoff=Backoff(0.0, 0.0))
    pool.step(offers(BALANCED))
    first, second = pool.step(offers(BALANCED)), pool.step(offers(BALANCED))

    assert (first, second) == (0.0, 0.0)
    assert pool.step(offers(BALANCED)) is None
    assert pool.claims.looks == 3
    assert pool.becomes(offers(BALANCED))


def test_what_the_plugin_holds_needs_no_look() -> None:
    pool = Pool(Claims(NOBODY), stored=offers(DYNAMIC, BALANCED))
    pool.step(offers(BALANCED), CLAIMED)

    assert pool.step(offers(BALANCED), CLAIMED) is None
    assert pool.claims.looks == 0

    pool.step(offers(BALANCED))
    assert pool.claims.looks == 1
    assert pool.becomes(offers(BALANCED))


def test_claims_that_cannot_be_listed_leave_the_devices_and_are_asked_for_again() -> None:
    claims = Claims(ApiError("forbidden"), NOBODY)
    pool = Pool(claims, stored=offers(DYNAMIC), backoff=Backoff(0.0, 0.0))
    pool.step(offers(BALANCED))

    again = pool.step(offers(BALANCED))
    assert again is not None
    assert not pool.becomes(offers(BALANCED))

    assert pool.step(offers(BALANCED)) is None
    assert pool.becomes(offers(BALANCED))


def test_an_api_server_without_taints_is_looked_at_all_the_same() -> None:
    pool = Pool(Claims(NOBODY), stored=offers(DYNAMIC))

    assert pool.step(offers(BALANCED), dropped=frozenset({"taints"})) is None
    assert pool.claims.looks == 1


def test_a_new_controller_goes_on_where_the_old_one_stood() -> None:
    pool = Pool(Claims(NOBODY), stored=offers(DYNAMIC))
    pool.step(offers(BALANCED))

    pool.known = Known()

    assert pool.step(offers(BALANCED)) is None
    assert pool.claims.looks == 1
    assert pool.becomes(offers(BALANCED))


def test_a_gpu_in_doubt_outlives_a_wipe_of_the_slices() -> None:
    pool = Pool(Claims(NOBODY), stored=offers(DYNAMIC))
    lost = Taint("gpu.nvidia.com/gpu-lost", "", "NoSchedule")
    first = offers(DYNAMIC).devices[0].pci
    doubtful = replace(
        offers(DYNAMIC),
        devices=tuple(one for one in offers(DYNAMIC).devices if one.pci != first),
        counter_sets=tuple(one for one in offers(DYNAMIC).counter_sets if one.pci != first),
        doubts=(Doubt(first, whole=True, taints=(lost,)),),
    )
    pool.step(doubtful)
    before = pool.stored

    pool.stored = []
    pool.step(doubtful)

    assert pool.stored == before
    assert {one.name for one in published(before, POOL)[0]} == set(names(offers(DYNAMIC).devices))


def test_what_only_an_older_generation_has_counts_as_published_and_the_newest_wins() -> None:
    old, new = offers(BALANCED), offers(SMALL)
    newer = replace(new, devices=tuple(replace(one, attributes={"index": 7}) for one in new.devices))

    devices, _ = published([*slices(old, 1), *slices(newer, 2)], POOL)

    assert {device.name for device in devices} == {*names(old.devices), *names(new.devices)}
    assert all(device.attributes == {"index": 7} for device in devices if device.name in names(new.devices))


def test_devices_whose_counters_are_gone_are_published_no_more() -> None:
    _counters, *devices = slices(offers(DYNAMIC, WHOLE))

    assert names(published(devices, POOL)[0]) == ["gpu-0000-43-00-0"]


def test_slices_of_another_pool_are_not_ours() -> None:
    assert published(slices(offers(DYNAMIC)), "node-a") == ((), ())
