"""The watch tells of a driver that comes, goes or is replaced, although nobody asks for it."""

import threading
from pathlib import Path

from driver.roots.watch import RootWatch, watch_roots
from fakegpu.driver_files.host_layouts import remove_driver
from tests.clusters import Service
from tests.eventually import WAIT_SECONDS
from tests.gpus import HOST_LAYOUTS, DriverRoots, lay_driver

CONTAINER = HOST_LAYOUTS["driver container, OpenShift"]


def test_each_change_is_told_once(roots: DriverRoots, tmp_path: Path) -> None:
    told = threading.Semaphore(0)
    watch = RootWatch(roots, told.release, 15.0)
    watch.look()
    assert not told.acquire(blocking=False)

    for change in (
        lambda: lay_driver(tmp_path, CONTAINER, "570.1.1"),
        lambda: lay_driver(tmp_path, CONTAINER, "570.1.1"),
        lambda: lay_driver(tmp_path, CONTAINER, "580.1.1"),
        lambda: remove_driver(tmp_path, CONTAINER),
    ):
        change()
        watch.look()
        watch.look()
        assert told.acquire(blocking=False)
        assert not told.acquire(blocking=False)


def test_a_driver_that_comes_while_the_service_runs_is_told(roots: DriverRoots, tmp_path: Path) -> None:
    told, service = threading.Semaphore(0), Service()
    watch_roots(service, roots, 0.05, told.release)
    try:
        lay_driver(tmp_path, CONTAINER, "570.1.1")
        assert told.acquire(timeout=WAIT_SECONDS)
        remove_driver(tmp_path, CONTAINER)
        assert told.acquire(timeout=WAIT_SECONDS)
    finally:
        service.stop()
