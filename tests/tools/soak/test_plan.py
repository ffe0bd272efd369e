"""A run is decided by its seed: who comes, and what happens to the node."""

from __future__ import annotations

from tools.soak.plan import (
    FAULTS,
    NEW_PROCESS,
    NEW_PROCESSES_UNTIL,
    POD_GPUS,
    POD_KINDS,
    RESTARTS,
    plan,
)

SECONDS = 1200.0


def test_the_same_seed_gives_the_same_plan_and_another_seed_another_one() -> None:
    assert plan(7, SECONDS) == plan(7, SECONDS)
    assert plan(7, SECONDS) != plan(8, SECONDS)


def test_twenty_minutes_have_every_kind_of_pod_every_fault_and_every_restart() -> None:
    made = plan(7, SECONDS)

    assert {pod.kind for pod in made.pods} == POD_KINDS.keys()
    assert len({pod.name for pod in made.pods}) == len(made.pods)
    assert {fault.what for fault in made.faults} == set(FAULTS)
    assert {fault.gpu for fault in made.faults} == set(range(POD_GPUS))
    assert {one.what for one in made.restarts} == {*NEW_PROCESS, *RESTARTS}
    # No process of the driver is replaced in the part that compares memory.
    late = {one.what for one in made.restarts if one.at >= SECONDS * NEW_PROCESSES_UNTIL}
    assert late
    assert not late & set(NEW_PROCESS)
