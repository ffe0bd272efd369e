"""Measures claims, starts and memory on a real cluster, compared with the floor or with a former version."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from driver.devices.names import gpu_device_name
from envtest.client import paths
from envtest.client.shipped import PACKAGE_ROOT
from envtest.client.waiting import wait_for_list, wait_gone
from envtest.real.build import DEFAULT_KUBERNETES
from envtest.real.startup import start_cluster
from gpuctl.demo.driver_node import DRIVER_NAMESPACE, DriverNode
from proto import dra_v1_pb2 as pb
from tools.bench.as_pod import AS_POD
from tools.bench.former_version import former_version
from tools.bench.kubelet_calls import Plugin, make_claim, make_namespace
from tools.bench.latency import CLAIMS_PER_ROUND, Contender, measure
from tools.bench.table import Row, Spread, finish

MACHINE = "dgx2"
MANY = 64
STARTS = 15
RESTARTS = 3
# The kubelet looks for plugins once a second: after this time it has noticed that one has ended.
_FORGOTTEN_SECONDS = 1.5
CALLS = {
    "prepare": "prepare, one at a time",
    "again": "prepare again",
    "unprepare": "unprepare",
    "eight_at_once": "8 claims at once",
    "all_at_once": f"{MANY} claims at once on 16 GPUs",
}
# What was measured on quiet cores, and a margin; docs/decisions.md says where the time goes.
FLOOR_LIMITS = {
    "prepare": 1.3,
    # The driver reads the hardware and its files again, which the floor does not.
    "again": 1.5,
    # Locks, logs, metrics and one more file to remove, beside a floor of which gRPC is two thirds.
    "unprepare": 1.5,
    "eight_at_once": 1.6,
    # Four claims of a GPU wait for each other.
    "all_at_once": 1.8,
}
MOST_BESIDE_FORMER = 1.05


def claims_of(driver: DriverNode) -> list[pb.Claim]:
    """64 claims for devices of a node. The first eight have a GPU each.

    Claims beyond the number of GPUs have admin access, with which several claims can have one device.
    """
    cluster, node = driver.cluster, driver.node.name
    devices = [gpu_device_name(pci) for pci in sorted(driver.machine.state.gpus)]
    if len(devices) < CLAIMS_PER_ROUND:
        raise ValueError(f"a machine of {len(devices)} GPUs is too small, {CLAIMS_PER_ROUND} are needed")
    return [
        make_claim(cluster, f"{node}-{i}", node, devices[i % len(devices)], admin=i >= len(devices))
        for i in range(MANY)
    ]


@contextmanager
def floor_beside(driver: DriverNode, claims: Sequence[pb.Claim]) -> Iterator[Plugin]:
    """The floor, running next to the driver with the same disk and CDI folder, and specs of the same size."""
    with tempfile.TemporaryDirectory(prefix="floor-", dir=driver.folder) as name:
        folder = Path(name)
        (folder / "spec").write_bytes(_a_spec(driver, claims[0]))
        kubeconfig = driver.cluster.service_account_kubeconfig(
            DRIVER_NAMESPACE, "gpu-dra-kubeletplugin", driver.node.name
        )
        paths_given = (folder / "f.sock", kubeconfig, folder, driver.node.cdi_dir, folder / "spec")
        command = (sys.executable, "-m", "tools.bench.floor", *map(str, paths_given))
        process = driver.cluster.processes.start("floor", command, {"PYTHONPATH": str(PACKAGE_ROOT)})
        try:
            with Plugin(folder / "f.sock") as plugin:
                yield plugin
        finally:
            process.stop()


def _a_spec(driver: DriverNode, claim: pb.Claim) -> bytes:
    """The spec that the driver writes for a claim."""
    with Plugin(driver.plugin_socket) as plugin:
        plugin.prepare(claim)
        (spec,) = driver.node.cdi_dir.glob(f"*{claim.uid}.json")
        data = spec.read_bytes()
        plugin.unprepare(claim)
    return data


def start(driver: DriverNode) -> None:
    """Start the driver on its node, and wait until it serves."""
    driver.start_plugin()
    driver.start_controller()
    driver.wait_serving()


def _wait_slices(driver: DriverNode) -> list[dict[str, Any]]:
    return wait_for_list(driver.cluster.api, paths.resource_slice(), bool, 60)


def _start_to_published(driver: DriverNode) -> list[float]:
    """The seconds of each start, from starting both processes on an empty node until the slices are complete.

    They include up to a second until the kubelet looks for new plugins.
    """
    times = []
    for number in range(STARTS):
        # Spread the starts evenly over the second after which the kubelet looks again, so that they wait for
        # it half a second on average.
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
        time.sleep(_FORGOTTEN_SECONDS)
    return times


def _slices_back(driver: DriverNode) -> float:
    """The seconds from a kubelet's restart, in which it deletes the slices, until they are complete again."""
    # A kubelet that starts deletes all ResourceSlices of its node, since no plugin is registered yet.
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


def _rows(ratios: Mapping[str, Spread], limits: Mapping[str, float]) -> list[Row]:
    """A row for each kind of call."""
    return [Row(what, ratios[name], limits[name]) for name, what in CALLS.items()]


def _run_beside_floor(kubernetes: str) -> list[Row]:
    """The rows of calls and starts."""
    with start_cluster(kubernetes=kubernetes) as cluster:
        driver = DriverNode.install(cluster, machine=MACHINE, launcher=AS_POD)
        published = Spread.of(_start_to_published(driver))
        start(driver)
        make_namespace(cluster)
        claims = claims_of(driver)
        with Plugin(driver.plugin_socket) as plugin, floor_beside(driver, claims) as floor:
            ours, least = measure(Contender(plugin, claims), Contender(floor, claims))
        back = Spread.of([_slices_back(driver) for _ in range(RESTARTS)])
    return [
        *_rows(ours.beside(least), FLOOR_LIMITS),
        Row("slices back after a kubelet restart", back, 2.0, "s"),
        Row("start to published", published, 1.1, "s"),
    ]


def _run_beside_former(kubernetes: str, commit: str) -> list[Row]:
    """The rows of the calls, today's version compared with a former one."""
    folder = former_version(commit)
    with start_cluster(2, kubernetes) as cluster:
        # Today's version is installed last, so that both versions have its rights and classes.
        former = DriverNode.install(cluster, 1, MACHINE, packages=folder)
        driver = DriverNode.install(cluster, 0, MACHINE)
        both = (driver, former)
        for one in both:
            start(one)
        make_namespace(cluster)
        claims = [claims_of(one) for one in both]
        with Plugin(driver.plugin_socket) as ours, Plugin(former.plugin_socket) as theirs:
            new, old = measure(Contender(ours, claims[0]), Contender(theirs, claims[1]))
    return _rows(new.beside(old), dict.fromkeys(CALLS, MOST_BESIDE_FORMER))


@click.command()
@click.option("--kubernetes", default=DEFAULT_KUBERNETES, show_default=True, help="The minor version.")
@click.option("--beside", metavar="COMMIT", help="Compare with the driver of this commit instead.")
def main(kubernetes: str, beside: str | None) -> None:
    """Compare the driver with a floor, or a former version, in one run; exits 1 if a limit is not met."""
    if beside is None:
        finish(_run_beside_floor(kubernetes), kubernetes)
    finish(_run_beside_former(kubernetes, beside), kubernetes, f"times {beside}")


if __name__ == "__main__":
    main()
