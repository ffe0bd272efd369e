"""Runs groups of scenarios in several processes, so that clusters run side by side."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from math import ceil
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from driver.process.log import configure
from envtest.client.errors import ClusterError
from gpuctl.demo.ending import signals_end_it_once
from tools.scenarios.description import ClusterKind
from tools.scenarios.groups import Group, Result, run_group

Line = Connection
"""Between this process and a worker: that asks for work with None and tells results; it is sent groups."""


_INTERRUPTED = 130


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
    """The groups, large ones cut so that each of the workers has something to do."""
    most = max(1, ceil(sum(map(len, groups)) / jobs))
    return [group[at : at + most] for group in groups for at in range(0, len(group), most)]


def _serve(
    line: Line, workers: dict[Line, SpawnProcess], left: list[Group], tell: Callable[[Result], None]
) -> None:
    """Answer one message of a worker; without more work it is told to end."""
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
    """The work of a process: one group after the other."""
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
            sys.exit(_INTERRUPTED)  # whoever started this says so
