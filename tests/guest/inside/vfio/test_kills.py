"""The process that binds is killed at every step, and another one goes on or undoes it."""

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kubeletplugin.devices.host.kernel import RealKernel
from tests.guest.inside.vfio.devices import (
    BEHIND,
    HOST,
    OWN_DRIVERS,
    SYSFS,
    WITHOUT_DRIVER,
    Journal,
    at,
    binder,
    driver,
    override,
)

BIND_STEPS, RESTORE_STEPS = 11, 15
BIND_WRITES, RESTORE_WRITES = (2, 4, 6, 8, 10), (2, 3, 8, 9, 11, 13)
"""The steps that are writes; a note between them changes no function."""

BEFORE = [(OWN_DRIVERS[address], "(null)") for address in (BEHIND, WITHOUT_DRIVER)]


class Doomed(RealKernel):
    """The real kernel, and a process that is killed at one of its steps: a note, or the end of a write."""

    def __init__(self, last: int) -> None:
        super().__init__(HOST, SYSFS)
        self._left = last

    def step(self) -> None:
        """One step is over."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, path: Path, text: str, deadline_seconds: float) -> None:
        super().write(path, text, deadline_seconds)
        self.step()


@pytest.mark.parametrize("last", [1, *BIND_WRITES, BIND_STEPS])
def test_killed_after_any_write_of_bind_it_is_undone(journal: Journal, last: int) -> None:
    assert _killed(last, journal, _bind)
    binder().restore(journal.record, journal.note)

    assert [(driver(one), override(one)) for one in (BEHIND, WITHOUT_DRIVER)] == BEFORE
    assert journal.record == {}


@pytest.mark.parametrize("last", RESTORE_WRITES)
def test_killed_after_any_write_of_restore_it_goes_on(journal: Journal, last: int) -> None:
    binder().bind(at(BEHIND), [at(BEHIND)], {}, journal.note)
    assert _killed(last, journal, _restore)
    binder().restore(journal.record, journal.note)

    assert [(driver(one), override(one)) for one in (BEHIND, WITHOUT_DRIVER)] == BEFORE


@pytest.mark.parametrize("last", [4, 8])
def test_killed_in_the_middle_of_bind_it_goes_on(journal: Journal, last: int) -> None:
    assert _killed(last, journal, _bind)
    bound = binder().bind(at(BEHIND), [at(BEHIND)], journal.record, journal.note)

    assert [driver(one) for one in (BEHIND, WITHOUT_DRIVER)] == ["vfio-pci"] * 2
    binder().restore(bound, journal.note)
    assert [(driver(one), override(one)) for one in (BEHIND, WITHOUT_DRIVER)] == BEFORE


def test_there_are_no_more_steps(journal: Journal) -> None:
    assert not _killed(BIND_STEPS + 1, journal, _bind)
    assert not _killed(RESTORE_STEPS + 1, journal, _restore)


def _bind(kernel: Doomed, journal: Journal) -> None:
    binder(kernel, lambda _: ()).bind(at(BEHIND), [at(BEHIND)], journal.record, _noted(kernel, journal))


def _restore(kernel: Doomed, journal: Journal) -> None:
    binder(kernel, lambda _: ()).restore(journal.record, _noted(kernel, journal))


def _noted(kernel: Doomed, journal: Journal) -> Callable[[str, Mapping[str, Any]], None]:
    def note(step: str, record: Mapping[str, Any]) -> None:
        journal.note(step, record)
        kernel.step()

    return note


def _killed(last: int, journal: Journal, work: Callable[[Doomed, Journal], None]) -> bool:
    """Have another process do the work up to a step; whether it was killed there."""
    pid = os.fork()
    if pid == 0:
        try:
            work(Doomed(last), journal)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)
