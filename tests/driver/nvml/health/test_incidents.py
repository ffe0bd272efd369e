"""What the two forms of an incident make together, in every order and at every time that they come."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.nvml.health.incidents import ALIKE_SECONDS, HOLD_SECONDS, Incidents, Received
from tests.gpus import GpuEvent

GPU = "GPU-1"
OLD = Received(GpuEvent("xid", GPU, 94, 2, 0))
NEW = Received(GpuEvent("xid", GPU, 94, severity="recoverable", contained=True, incident="7"), 1)
BOTH = GpuEvent("xid", GPU, 94, 2, 0, severity="recoverable", contained=True, incident="7")


def told(*heard: tuple[float, Received], both: bool = True) -> list[GpuEvent]:
    """All that is told of what was heard at these times."""
    incidents = Incidents(frozenset({GPU} if both else ()))
    found: list[GpuEvent] = []

    def take(now: float) -> None:
        while (event := incidents.ready(now)) is not None:
            found.append(event)

    for now, one in heard:
        take(now)
        incidents.add(one, now)
        take(now)
    take(heard[-1][0] + HOLD_SECONDS)
    assert incidents.due_in(heard[-1][0] + HOLD_SECONDS) is None
    return found


@pytest.mark.parametrize("order", [(OLD, NEW), (NEW, OLD)], ids=["old first", "new first"])
def test_the_two_forms_become_one(order: tuple[Received, Received]) -> None:
    assert told((0, order[0]), (0.01, order[1])) == [BOTH]


def test_a_gpu_that_knows_the_old_form_alone_is_not_waited_for() -> None:
    incidents = Incidents(frozenset())
    incidents.add(OLD, 5)
    assert incidents.due_in(5) == 0
    assert incidents.ready(5) == OLD.event


def test_a_form_alone_is_told_when_the_other_does_not_come() -> None:
    incidents = Incidents(frozenset({GPU}))
    incidents.add(OLD, 5)
    assert incidents.ready(5) is None
    assert incidents.due_in(5) == pytest.approx(HOLD_SECONDS)
    assert incidents.ready(5 + HOLD_SECONDS) == OLD.event


def test_an_old_form_that_comes_late_adds_nothing() -> None:
    assert told((0, NEW), (1, OLD)) == [NEW.event]


def test_a_new_form_that_comes_late_tells_its_severity_and_no_further_xid() -> None:
    assert told((0, OLD), (1, NEW)) == [OLD.event, replace(NEW.event, kind="operational", xid=None)]


def test_the_same_xid_much_later_is_another_incident() -> None:
    later = ALIKE_SECONDS + 1
    assert told((0, NEW), (later, OLD)) == [NEW.event, OLD.event]


def test_a_late_form_belongs_to_one_incident_alone() -> None:
    assert told((0, NEW), (1, OLD), (1.5, OLD)) == [NEW.event, OLD.event]


def test_a_group_is_told_once_with_the_worst_of_it() -> None:
    first = Received(GpuEvent("operational", GPU, severity="corrected", contained=True, incident="7"), 3)
    second = Received(replace(NEW.event, severity="fatal", contained=False), 3)
    third = Received(replace(first.event, recovered=True, dropped=True), 3)
    expected = replace(BOTH, severity="fatal", contained=False, recovered=True, dropped=True)
    assert told((0, first), (0.01, OLD), (0.02, second), (0.03, third)) == [expected]
    assert told((0, first), (0.01, second), (0.02, third), (0.03, OLD)) == [expected]


def test_a_group_that_stays_incomplete_is_told_nevertheless() -> None:
    first = Received(GpuEvent("operational", GPU, severity="corrected", incident="7"), 3)
    assert told((0, first)) == [first.event]


def test_what_is_held_is_told_at_once_when_nothing_more_can_come() -> None:
    incidents = Incidents(frozenset({GPU}))
    incidents.add(OLD, 5)
    incidents.release_all(5)
    assert incidents.ready(5) == OLD.event


@given(st.lists(st.tuples(st.sampled_from((13, 31, 94)), st.booleans(), st.booleans()), max_size=12))
def test_as_many_incidents_are_told_as_there_were(incidents: list[tuple[int, bool, bool]]) -> None:
    """Each comes in one form or in both, in either order, far enough from the next of its XID."""
    heard: list[tuple[float, Received]] = []
    for number, (xid, in_both, new_first) in enumerate(incidents):
        at = number * (ALIKE_SECONDS + 1)
        old = Received(GpuEvent("xid", GPU, xid))
        new = Received(GpuEvent("xid", GPU, xid, severity="fatal", incident=str(number + 1)), 1)
        order = (new, old) if new_first else (old, new)
        heard += [(at, order[0]), (at + 0.05, order[1])] if in_both else [(at, order[0])]
    assert not heard or [one.xid for one in told(*heard)] == [xid for xid, _, _ in incidents]
