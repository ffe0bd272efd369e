"""Times what happens around claims: the start until the slices are there, and their way back."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from envtest.client import paths
from envtest.client.watching import wait_for_list, wait_gone
from gpuctl.demo.driver_node import DriverNode

STARTS = 15
FORGOTTEN_SECONDS = 1.5
"""After this the kubelet, which looks once a second, has forgotten the plugin that ended."""


def _have_slices(slices: list[dict[str, Any]]) -> bool:
    return bool(slices)


def _wait_slices(driver: DriverNode) -> list[dict[str, Any]]:
    return wait_for_list(driver.cluster.api, paths.resource_slice(), _have_slices, 60)


def start_to_published(driver: DriverNode) -> list[float]:
    """Seconds from the start of both processes, on a node where none ran, to complete slices, start by start.

    They contain the time, up to a second, until the kubelet looks for new plugins.
    """
    times = []
    for number in range(STARTS):
        # The kubelet looks once a second: starts spread evenly over that second meet it as it is on average.
        time.sleep((number / STARTS - time.monotonic()) % 1)
        started = time.perf_counter()
        driver.start_plugin()
        driver.start_controller()
        (stored, *_) = _wait_slices(driver)
        times.append(time.perf_counter() - started)
        driver.process("controller").stop()
        driver.process("kubeletplugin").stop()
        for found in driver.cluster.api.list_objects(paths.resource_slice()):
            driver.cluster.api.delete(paths.resource_slice(found["metadata"]["name"]))
        wait_gone(driver.cluster.api, paths.resource_slice(stored["metadata"]["name"]))
        time.sleep(FORGOTTEN_SECONDS)
    return times


def slices_back(driver: DriverNode) -> float:
    """Seconds from the moment when a starting kubelet wiped the slices until they are complete again."""
    (old, *_) = _wait_slices(driver)
    gone: list[float] = []

    def watch() -> None:
        wait_gone(driver.cluster.api, paths.resource_slice(old["metadata"]["name"]), 120)
        gone.append(time.perf_counter())

    thread = threading.Thread(target=watch)
    thread.start()
    driver.cluster.restart_kubelet(0)
    thread.join(120)
    _wait_slices(driver)
    return time.perf_counter() - gone[0]


def resident_mib(driver: DriverNode, package: str) -> float:
    """The resident memory of a process, in MiB."""
    with Path(f"/proc/{driver.process(package).host_pid}/status").open(encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024
