"""Runs many scenarios: those that want the same share a cluster, and several clusters run side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from driver.errors import DriverError
from envtest.client.errors import ClusterError
from tools.scenarios.catalogue import Scenario
from tools.scenarios.description import ClusterKind
from tools.scenarios.places.place import Place, built_place
from tools.scenarios.running import Failure, Outcome, run_page
from tools.scenarios.written import faults

Group = tuple[Scenario, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """How a scenario came out. ``start_seconds`` is what its cluster took to start, 0 where it was there."""

    name: str
    file: str
    seconds: float
    start_seconds: float
    failure: Failure | None


def groups_of(scenarios: Sequence[Scenario]) -> list[Group]:
    """The scenarios that want the same together, each group in the order that is given."""
    found: dict[object, list[Scenario]] = {}
    for one in scenarios:
        found.setdefault(one.description.wanted, []).append(one)
    return [tuple(group) for group in found.values()]


def run_group(group: Group, kind: ClusterKind, tell: Callable[[Result], None]) -> None:
    """Run scenarios that want the same, one after the other; ``tell`` hears of each when it has ended.

    A cluster on which one has failed is not used again, since nobody knows what is left there.
    """
    with ExitStack() as cleanup:
        place: Place | None = None
        for scenario in group:
            wrong = faults(scenario)
            if wrong:
                tell(_result(scenario, Outcome(0.0, Failure(1, "", "it is written wrong", "\n".join(wrong)))))
                continue
            begun = time.monotonic()
            try:
                place = place or cleanup.enter_context(built_place(scenario.description.wanted, kind))
                started = time.monotonic()
                outcome = run_page(scenario.page, place)
            except (DriverError, ClusterError, OSError) as error:
                started = time.monotonic()
                outcome = Outcome(0.0, Failure(1, "", "its cluster failed", str(error)))
            tell(_result(scenario, outcome, started - begun))
            if outcome.failure is not None:
                cleanup.close()
                place = None


def _result(scenario: Scenario, outcome: Outcome, start_seconds: float = 0.0) -> Result:
    return Result(scenario.name, str(scenario.page.file), outcome.seconds, start_seconds, outcome.failure)
