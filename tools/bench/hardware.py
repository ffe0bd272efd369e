"""Measures what deadlines cost: a call with one, compared with a bare hand-over, and reading many GPUs."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from driver.hardware.inventory import Discovery
from driver.nvml.deadline import Guard
from fakegpu.driver_files.driver_root import build_sysfs
from fakegpu.machine.fake_machine import FakeMachine
from tools.bench.table import Row, Spread, exit_status, lines

ROUNDS = 30
CALLS = 200
MANY, ONE = "dgx2", "t4"
"""Machines of sixteen GPUs, each linked to all others, and of one."""

CALL_LIMIT = 3.0
# Above 1, because each of the sixteen GPUs also reads its links to the others.
READ_LIMIT = 1.5


def seconds_of(work: Callable[[], object], times: int) -> float:
    """The seconds that it takes to do the work ``times`` times."""
    began = time.perf_counter()
    for _ in range(times):
        work()
    return time.perf_counter() - began


def call_row() -> Row:
    """An NVML call with a deadline, compared with a job that one thread hands to another and waits for."""
    guard, given, done = Guard(), SimpleQueue[str](), SimpleQueue[str]()

    def bare() -> None:
        while given.get():
            done.put("done")

    def hand_over() -> None:
        given.put("a job")
        done.get()

    thread = Thread(target=bare, daemon=True)
    thread.start()
    ours, floor = [], []
    for _ in range(ROUNDS):
        ours.append(seconds_of(lambda: guard.run("gpu", lambda watch: watch("minor", int)), CALLS))
        floor.append(seconds_of(hand_over, CALLS))
    given.put("")
    thread.join()
    guard.close()
    return Row(
        "an NVML call behind a deadline, to a bare hand-over", Spread.of_ratios(ours, floor), CALL_LIMIT
    )


def read_row(folder: Path) -> Row:
    """Reading sixteen GPUs once, compared with reading one GPU sixteen times."""
    many, one = (_discovery(folder / machine, machine) for machine in (MANY, ONE))
    ours, floor = [], []
    for _ in range(ROUNDS):
        ours.append(seconds_of(many.snapshot, 1))
        floor.append(seconds_of(one.snapshot, 16))
    return Row("a look at 16 GPUs, to 16 looks at one", Spread.of_ratios(ours, floor), READ_LIMIT)


def _discovery(folder: Path, machine: str) -> Discovery:
    folder.mkdir()
    fake = FakeMachine.open(machine)
    found = Discovery(fake.nvml(), build_sysfs(folder, fake), Guard())
    found.snapshot()
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        rows = [call_row(), read_row(Path(folder))]
    print("\n".join(lines(rows, "times the floor")))
    sys.exit(exit_status(rows))
