"""Runs many scenarios: those that need the same cluster share one, and several clusters run side by side."""

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

# The exit code of a process that SIGINT has ended.
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a scenario. ``start_seconds`` is how long its cluster took to start, if it did."""

    name: str
    file: str
    seconds: float
    start_seconds: float
    failure: Failure | None


def groups_of(scenarios: Sequence[Scenario]) -> list[Group]:
    """The scenarios in groups that need the same cluster; each group keeps the given order."""
    found: dict[object, list[Scenario]] = {}
    for one in scenarios:
        found.setdefault(one.description.wanted, []).append(one)
    return [tuple(group) for group in found.values()]


def run_group(group: Group, kind: ClusterKind, report: Callable[[Result], None]) -> None:
    """Run scenarios that need the same cluster, one after the other; ``report`` gets each result."""
    with ExitStack() as cleanup:
        place: Place | None = None
        for scenario in group:
            wrong = faults(scenario)
            if wrong:
                failure = Failure(1, "", "it is written wrong", "\n".join(wrong))
                report(_result(scenario, Outcome(0.0, failure)))
                continue
            begun = time.monotonic()
            try:
                place = place or cleanup.enter_context(built_place(scenario.description.wanted, kind))
                started = time.monotonic()
                outcome = run_page(scenario.page, place)
            except (DriverError, ClusterError, OSError) as error:
                started = time.monotonic()
                outcome = Outcome(0.0, Failure(1, "", "its cluster failed", str(error)))
            report(_result(scenario, outcome, started - begun))
            # A cluster on which a scenario has failed is not used again: its state is unknown.
            if outcome.failure is not None:
                cleanup.close()
                place = None


def _result(scenario: Scenario, outcome: Outcome, start_seconds: float = 0.0) -> Result:
    return Result(scenario.name, str(scenario.page.file), outcome.seconds, start_seconds, outcome.failure)


class WorkerDied(ClusterError):
    """A worker ended before its work was done."""


def run_side_by_side(
    groups: Sequence[Group], kind: ClusterKind, jobs: int, report: Callable[[Result], None]
) -> None:
    """Run groups in so many worker processes, the largest first; raises WorkerDied.

    A worker sends None when it wants work, and each result. It gets a group, or None if none is left.
    """
    left = sorted(parts_of(groups, jobs), key=len)
    # Spawned, since a fork would copy the locks that other threads of this process hold.
    context = get_context("spawn")
    workers: dict[Connection, SpawnProcess] = {}
    try:
        for number in range(min(jobs, len(left))):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, kind), name=f"scenarios-{number}")
            process.start()
            # Otherwise this process would not see the end of the pipe when the worker ends.
            theirs.close()
            workers[ours] = process
        while workers:
            ready = connection.wait(list(workers))
            for pipe in [one for one in workers if one in ready]:
                _serve(pipe, workers, left, report)
    finally:
        for process in workers.values():
            if process.is_alive():
                # By SIGTERM a worker ends its cluster. Some shells start processes that ignore Ctrl-C.
                process.terminate()
            process.join()


def parts_of(groups: Sequence[Group], jobs: int) -> list[Group]:
    """The groups, with large ones divided so that every worker has work."""
    most = max(1, ceil(sum(map(len, groups)) / jobs))
    return [group[at : at + most] for group in groups for at in range(0, len(group), most)]


def _serve(
    pipe: Connection,
    workers: dict[Connection, SpawnProcess],
    left: list[Group],
    report: Callable[[Result], None],
) -> None:
    """Handle one message of a worker."""
    try:
        message = pipe.recv()
    except EOFError:
        process = workers.pop(pipe)
        process.join()
        if process.exitcode != 0:
            raise WorkerDied(f"{process.name} ended with status {process.exitcode}") from None
        return
    if message is None:
        pipe.send(left.pop() if left else None)
    else:
        report(message)


def _work(pipe: Connection, kind: ClusterKind) -> None:
    """Run one group after the other in a worker process."""
    configure("warning", sys.stderr)
    with signals_end_it_once():
        try:
            while True:
                pipe.send(None)
                group = pipe.recv()
                if group is None:
                    return
                run_group(group, kind, pipe.send)
        except KeyboardInterrupt:
            # Without a traceback: the process that started this one reports it.
            sys.exit(_INTERRUPTED)
