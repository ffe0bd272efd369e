"""The watch tells of a driver that comes, goes or is replaced, although nobody asks for it."""

import threading
from pathlib import Path

import pytest

from driver.roots.watch import RootWatch, watch_roots
from fakegpu.driver_files.host_layouts import remove_driver
from tests.clusters import Service
from tests.gpus import HOST_LAYOUTS, DriverRoots, lay_driver

CONTAINER = HOST_LAYOUTS["driver container, OpenShift"]
WAIT_SECONDS = 30.0


class Told:
    """Counts the changes, and wakes whoever waits for the next one."""

    def __init__(self) -> None:
        self._changes = threading.Semaphore(0)

    def __call__(self) -> None:
        self._changes.release()

    def came(self) -> bool:
        """Wait for a change."""
        return self._changes.acquire(timeout=WAIT_SECONDS)

    def more(self) -> bool:
        """Whether a change is told that nobody has waited for."""
        return self._changes.acquire(blocking=False)


@pytest.fixture
def roots(tmp_path: Path) -> DriverRoots:
    """The roots of a host without a driver."""
    return DriverRoots.probed(tmp_path, tmp_path / "sys")


def test_each_change_is_told_once(roots: DriverRoots, tmp_path: Path) -> None:
    told = Told()
    watch = RootWatch(roots, told, 15.0)
    watch.look()
    assert not told.more()

    for change in (
        lambda: lay_driver(tmp_path, CONTAINER, "570.1.1"),
        lambda: lay_driver(tmp_path, CONTAINER, "570.1.1"),
        lambda: lay_driver(tmp_path, CONTAINER, "580.1.1"),
        lambda: remove_driver(tmp_path, CONTAINER),
    ):
        change()
        watch.look()
        watch.look()
        assert told.came()
        assert not told.more()


def test_a_driver_that_comes_while_the_service_runs_is_told(roots: DriverRoots, tmp_path: Path) -> None:
    told, service = Told(), Service()
    watch_roots(service, roots, 0.05, told)
    try:
        lay_driver(tmp_path, CONTAINER, "570.1.1")
        assert told.came()
        remove_driver(tmp_path, CONTAINER)
        assert told.came()
    finally:
        service.stop()
