"""Runs many scenarios: those that want the same share a cluster, and several clusters run side by side."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from driver.errors import DriverError
from driver.process.log import configure
from envtest.client.errors import ClusterError
from gpuctl.demo.ending import signals_end_it_once
from tools.scenarios.catalogue import Scenario
from tools.scenarios.description import ClusterKind
from tools.scenarios.places.place import Place, built_place
from tools.scenarios.running import Failure, Outcome, run_page
from tools.scenarios.written import faults

Group = tuple[Scenario, ...]

# The worker sends None when it wants work, and its results; this process sends groups, None for no more work.
Line = Connection
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Result:
    """How a scenario came out. ``start_seconds`` is how long its cluster took to start, if it did."""

    name: str
    file: str
    seconds: float
    start_seconds: float
    failure: Failure | None


def groups_of(scenarios: Sequence[Scenario]) -> list[Group]:
    """The scenarios in groups that want the same cluster; each group keeps the given order."""
    found: dict[object, list[Scenario]] = {}
    for one in scenarios:
        found.setdefault(one.description.wanted, []).append(one)
    return [tuple(group) for group in found.values()]


def run_group(group: Group, kind: ClusterKind, tell: Callable[[Result], None]) -> None:
    """Run scenarios that want the same cluster, one after the other; ``tell`` gets each result.

    A cluster on which one has failed is not used again, since its state is unknown.
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


class WorkerDied(ClusterError):
    """A worker ended before its work was done."""


def run_side_by_side(
    groups: Sequence[Group], kind: ClusterKind, jobs: int, tell: Callable[[Result], None]
) -> None:
    """Run groups, so many at a time, the largest first; raises WorkerDied."""
    left = sorted(parts_of(groups, jobs), key=len)
    context = get_context("spawn")
    workers: dict[Line, SpawnProcess] = {}
    try:
        for number in range(min(jobs, len(left))):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, kind), name=f"scenarios-{number}")
            process.start()
            theirs.close()
            workers[ours] = process
        while workers:
            ready = connection.wait(list(workers))
            for line in [one for one in workers if one in ready]:
                _serve(line, workers, left, tell)
    finally:
        for process in workers.values():
            if process.is_alive():
                process.terminate()  # it ends its cluster; Ctrl-C is ignored below some shells
            process.join()


def parts_of(groups: Sequence[Group], jobs: int) -> list[Group]:
    """The groups, with large ones divided so that every worker has something to do."""
    most = max(1, ceil(sum(map(len, groups)) / jobs))
    return [group[at : at + most] for group in groups for at in range(0, len(group), most)]


def _serve(
    line: Line, workers: dict[Line, SpawnProcess], left: list[Group], tell: Callable[[Result], None]
) -> None:
    """Answer one message of a worker."""
    try:
        said = line.recv()
    except EOFError:
        process = workers.pop(line)
        process.join()
        if process.exitcode != 0:
            raise WorkerDied(f"{process.name} ended with status {process.exitcode}") from None
        return
    if said is None:
        line.send(left.pop() if left else None)
    else:
        tell(said)


def _work(line: Line, kind: ClusterKind) -> None:
    """The work of a process: it runs one group after the other."""
    configure("warning", sys.stderr)
    with signals_end_it_once():
        try:
            while True:
                line.send(None)
                group = line.recv()
                if group is None:
                    return
                run_group(group, kind, line.send)
        except KeyboardInterrupt:
            sys.exit(_INTERRUPTED)  # the starting process reports it
