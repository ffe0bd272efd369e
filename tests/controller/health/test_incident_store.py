"""The incidents keeps faults until something ends them, and what comes back until it was well for long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.health.incident_store import Faults, IncidentStore, stored_faults
from driver.devices.names import gpu_device_name
from driver.devices.region import Region
from driver.hardware.gpu import Condition, Gpu, Inventory, Problem
from driver.health.health_rules import HealthRules
from driver.health.xid_verdicts import Incident
from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress
from tests.controller.published import Clock

PCI = PciAddress.parse("0000:8a:00.0")
OTHER = PciAddress.parse("0000:8b:00.0")
FATAL = Incident(Region(PCI), 95)
WELL = Gpu(PCI, "GPU-1", 0, 0, condition=Condition("none"))
RULES = HealthRules()


class Kept:
    """A incidents with a clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.changes = 0
        self.incidents = IncidentStore(self._changed, now=self.clock)

    def _changed(self) -> None:
        self.changes += 1

    def look(self, *gpus: Gpu, after: float = 15.0, rules: HealthRules = RULES, seconds: float = 0.0) -> None:
        self.clock.seconds += after
        self.incidents.gpus_checked(Inventory(gpus), rules, seconds)

    @property
    def taints(self) -> list[str]:
        return [f"{one.kind}={one.value}" for one in self.incidents.verdicts()]


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_a_fault_goes_with_the_first_look_that_hears_that_nothing_is_recommended(kept: Kept) -> None:
    assert kept.incidents.report(FATAL)
    assert kept.taints == ["xid=95", "needs-reset=xid-95"]
    kept.look(WELL)
    assert kept.taints == []
    assert kept.changes == 2


@pytest.mark.parametrize("action", ["reset", "drain-and-reset", None])
def test_it_stays_while_nvml_recommends_something_or_cannot_be_asked(kept: Kept, action: str | None) -> None:
    kept.incidents.report(FATAL)
    kept.look(replace(WELL, condition=Condition(action)))  # type: ignore[arg-type]
    kept.look()
    assert kept.taints == ["xid=95", "needs-reset=xid-95"]


def test_a_look_that_began_too_soon_after_the_last_event_ends_nothing(kept: Kept) -> None:
    kept.incidents.report(FATAL)
    kept.look(WELL, after=4.0)
    kept.incidents.report(FATAL)
    kept.look(WELL, after=4.0)
    kept.look(WELL, after=10.0, seconds=12.0)
    assert kept.taints
    kept.look(WELL)
    assert not kept.taints


def test_a_fault_that_comes_back_has_to_be_over_for_longer(kept: Kept) -> None:
    for _ in range(2):
        kept.incidents.report(FATAL)
        kept.look(WELL)
    assert kept.taints, "it was back"
    kept.look(WELL, after=20.0)
    assert kept.taints
    kept.look(WELL, after=11.0)
    assert not kept.taints


def test_repeats_are_no_news(kept: Kept) -> None:
    assert [kept.incidents.report(FATAL) for _ in range(1000)] == [True, *[False] * 999]
    assert kept.changes == 1


def test_the_worst_fault_comes_first(kept: Kept) -> None:
    for xid in (94, 95, 79):
        kept.incidents.report(Incident(Region(PCI), xid))
    assert [one for one in kept.taints if one.startswith("xid")] == ["xid=79", "xid=95", "xid=94"]


def test_what_an_admin_changes_counts_for_faults_of_before(kept: Kept) -> None:
    kept.incidents.report(FATAL)
    sick = replace(WELL, condition=Condition("reset"))
    kept.look(sick, rules=HealthRules({95: "ignore"}))
    assert kept.taints == []
    kept.look(sick, rules=HealthRules(evict=frozenset({"needs-reset"})))
    assert [one.effect for one in kept.incidents.verdicts()] == ["NoSchedule", "NoExecute"]


def test_what_is_stored_is_taken_over_once_and_not_from_before_the_machine_was_started(kept: Kept) -> None:
    old = Incident(Region(OTHER), 119)
    kept.incidents.take_over(lambda: [(FATAL, 100.0), (old, 7200.0)], uptime_seconds=3600.0)
    kept.incidents.take_over(lambda: [(old, 10.0)], uptime_seconds=3600.0)
    assert kept.taints == ["xid=95", "needs-reset=xid-95"]


def test_a_stored_fault_is_as_old_as_its_own_taint() -> None:
    now = datetime(2026, 11, 24, tzinfo=UTC)
    taints = [
        {
            "key": f"gpu.nvidia.com/{key}",
            "value": value,
            "effect": "NoSchedule",
            "timeAdded": (now - age).isoformat(),
        }
        for key, value, age in (
            ("fabric", "degraded", timedelta(hours=2)),
            ("xid", "94", timedelta(minutes=1)),
        )
    ]
    stored = {"spec": {"devices": [{"name": gpu_device_name(PCI), "taints": taints}]}}

    assert stored_faults([stored], now) == ((Incident(Region(PCI), 94, "contained"), 60.0),)


@pytest.mark.parametrize("first", ["the faults", "the reset"])
@pytest.mark.parametrize(("age_seconds", "is_over"), [(200.0, False), (50.0, True)])
def test_a_reset_ends_what_was_stored_before_it_whichever_is_told_first(
    kept: Kept, first: str, age_seconds: float, is_over: bool
) -> None:
    ways: list[Callable[[], None]] = [
        lambda: kept.incidents.take_over(lambda: [(FATAL, 100.0)], uptime_seconds=3600.0),
        lambda: kept.incidents.gpu_was_reset(PCI, age_seconds=age_seconds),
    ]
    for way in ways if first == "the faults" else reversed(ways):
        way()
    assert bool(kept.taints) != is_over


def test_an_older_reset_that_is_told_later_brings_no_fault_back(kept: Kept) -> None:
    for age_seconds in (50.0, 200.0):
        kept.incidents.gpu_was_reset(PCI, age_seconds)
    kept.incidents.take_over(lambda: [(FATAL, 100.0)], uptime_seconds=3600.0)
    assert not kept.taints


def test_what_a_look_finds_goes_at_once_and_lingers_when_it_came_back(kept: Kept) -> None:
    lost = replace(WELL, problems=(Problem("nvmlX", "lost", "lost"),))
    for _ in range(2):
        kept.look(lost)
        assert kept.taints == ["lost=nvmlX"]
        kept.look(WELL)
    assert kept.taints == ["lost=nvmlX"]
    assert [one.kind for one in kept.incidents.everything()] == ["lost"]
    kept.look(WELL, after=31.0)
    assert kept.taints == []


def test_nothing_lingers_of_a_gpu_that_is_gone(kept: Kept) -> None:
    lost = replace(WELL, problems=(Problem("nvmlX", "lost", "lost"),))
    for gpu in (lost, WELL, lost):
        kept.look(gpu)
    kept.look()
    assert kept.taints == []


steps = st.lists(
    st.one_of(
        st.tuples(st.just("told"), st.sampled_from([48, 79, 94, 95, 31])),
        st.tuples(st.just("well"), st.integers(0, 60)),
        st.tuples(st.just("sick"), st.integers(0, 60)),
        st.tuples(st.just("away"), st.integers(0, 60)),
        st.tuples(st.just("healed"), st.integers(0, 60)),
    ),
    max_size=30,
)


@given(steps)
def test_whatever_happens_a_gpu_that_stays_well_is_given_back(happens: list[tuple[str, int]]) -> None:
    kept = Kept()
    for what, number in happens:
        if what == "told":
            kept.incidents.report(Incident(Region(PCI), number))
            assert bool(kept.taints) or number == 31
        elif what == "healed":
            kept.clock.seconds += 1
            kept.incidents.gpu_was_reset(PCI, float(number))
        else:
            condition = Condition({"well": "none", "sick": "reset", "away": None}[what])
            kept.look(replace(WELL, condition=condition), after=float(number))
    kept.look(WELL, after=16.0)
    kept.look(WELL, after=600.0)
    assert kept.taints == []


def test_what_a_look_ended_does_not_come_back_with_the_slices_that_still_tell_of_it(kept: Kept) -> None:
    kept.incidents.report(FATAL)
    kept.look(WELL)
    kept.incidents.take_over(lambda: [(FATAL, 100.0)], uptime_seconds=3600.0)
    assert not kept.taints


PLACES = [Region(PCI), Region(PCI, Placement(0, 4)), Region(OTHER)]
some_incident = st.builds(Incident, st.sampled_from(PLACES), st.sampled_from([79, 95, 119]))
moments = st.integers(0, 5).map(float)
told = st.builds(lambda one, at: Faults({one: at}), some_incident, moments)
over = st.builds(
    lambda what, at: Faults(over_at={what: at}), some_incident | st.sampled_from([PCI, OTHER]), moments
)


@given(st.lists(told | over, max_size=10), st.randoms(use_true_random=False))
def test_the_same_facts_make_the_same_of_the_faults_in_any_order_and_however_often_they_come(
    facts: list[Faults], chance: Any
) -> None:
    again = facts + chance.sample(facts, chance.randint(0, len(facts)))
    chance.shuffle(again)
    half = chance.randint(0, len(again))
    first, second = (reduce(Faults.merged, part, Faults()) for part in (again[:half], again[half:]))

    known = reduce(Faults.merged, facts, Faults())
    assert first.merged(second) == known
    tells = sorted(
        ((one, at) for fact in facts for one, at in fact.reported_at.items()), key=lambda tell: tell[1]
    )
    ends = [(what, at) for fact in facts for what, at in fact.over_at.items()]
    assert known.reported_at == {
        one: at
        for one, at in dict(tells).items()
        if not any(what in (one, one.scope.pci) and end > at for what, end in ends)
    }


@given(
    st.lists(some_incident),
    st.lists(st.tuples(some_incident, moments)),
    st.lists(st.tuples(st.sampled_from([PCI, OTHER]), moments)),
    st.permutations(["events", "slices", "resets", "events", "slices", "resets"]),
)
def test_events_slices_and_resets_are_told_in_any_order(
    events: list[Incident],
    stored: list[tuple[Incident, float]],
    resets: list[tuple[PciAddress, float]],
    order: list[str],
) -> None:
    def taints(order: list[str]) -> list[str]:
        kept = Kept()
        for what in order:
            if what == "slices":
                kept.incidents.take_over(lambda: stored, uptime_seconds=4.5)
            for one in events if what == "events" else ():
                kept.incidents.report(one)
            for pci, age_seconds in resets if what == "resets" else ():
                kept.incidents.gpu_was_reset(pci, age_seconds)
        return kept.taints

    assert taints(order) == taints(["slices", "events", "resets"])
