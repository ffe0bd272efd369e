"""Measures the driver's processes while nothing happens: CPU, memory, and requests to the API server.

The node has eight GPUs with a layout of seven partitions each, all of which claims hold. It is measured again
after thousands of claims have come and gone. Both processes run with the intervals of a production node.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import click

from driver.kinds.partition.names import partition_device_name
from envtest.client import paths
from envtest.client.api import Object
from envtest.client.waiting import wait_for_list
from envtest.real.build import DEFAULT_KUBERNETES
from envtest.real.cluster import RealCluster
from envtest.real.startup import start_cluster
from gpuctl.demo.driver_node import DriverNode
from proto import dra_v1_pb2 as pb
from tools.bench.as_pod import AS_POD
from tools.bench.kubelet_calls import Plugin, make_claim, make_namespace
from tools.bench.process_use import cpu_seconds, private_mib, resident_mib, threads_and_descriptors
from tools.bench.table import Row, Spread, finish

MACHINE = "hgx-h100"
PROFILE, PLACES = "1g.10gb", range(7)
RULES = """version: v1
rules:
  - mig: {layout: all-1g}
"""
PROCESSES = ("kubeletplugin", "controller")
SETTLE_SECONDS = 40.0
"""More than two rounds of the controller, so that the work of a start is done."""

MEASURED_SECONDS = 60.0
MOST_PERCENT, MOST_REQUESTS = 0.6, 1.0
MOST_MIB, MOST_MIB_AFTER = 140.0, 145.0
MOST_MORE_THREADS = 8.0
MOST_FIRST_SECONDS = 10.0
USER_AGENTS = "gpu-dra-"


def requests_since(cluster: RealCluster, began: datetime) -> int:
    """How many requests of the driver the API server has received since then, by its audit log."""
    stamp = began.strftime("%Y-%m-%dT%H:%M:%S.%f")
    return sum(
        event.get("userAgent", "").startswith(USER_AGENTS) and event["requestReceivedTimestamp"] >= stamp
        for event in cluster.audit_events()
    )


def serve(cluster: RealCluster, driver: DriverNode) -> list[Row]:
    """Start both processes, with a layout of the smallest partitions on each GPU; how soon that is published.

    Autoscalers count the node as ready when its pool is complete.
    """
    config = driver.folder / "node-config.yaml"
    config.write_text(RULES)
    began = time.monotonic()
    driver.start_plugin()
    driver.start_controller("--config", str(config))
    slices = wait_for_list(cluster.api, paths.resource_slice(), is_complete)
    seconds = time.monotonic() - began
    driver.wait_serving()
    tainted = sum(bool(device.get("taints")) for one in slices for device in one["spec"].get("devices", ()))
    return [
        Row(
            "from the start of both processes to a complete pool",
            Spread.of([seconds]),
            MOST_FIRST_SECONDS,
            "s",
        ),
        Row("devices with a taint in it", Spread.of([tainted]), 0.0),
    ]


def is_complete(slices: Sequence[Object]) -> bool:
    """Whether all slices of the pool are stored."""
    return bool(slices) and len(slices) == slices[0]["spec"]["pool"]["resourceSliceCount"]


def at_rest(cluster: RealCluster, driver: DriverNode, when: str, most_mib: float) -> list[Row]:
    """The memory and CPU of each process and of both, and the requests of a minute."""
    pids = {process: driver.process(process).host_pid for process in PROCESSES}
    time.sleep(SETTLE_SECONDS)
    began, started = datetime.now(UTC), time.monotonic()
    before = {process: cpu_seconds(pid, children=True) for process, pid in pids.items()}
    time.sleep(MEASURED_SECONDS)
    seconds = time.monotonic() - started
    percent = {
        process: (cpu_seconds(pid, children=True) - before[process]) / seconds * 100
        for process, pid in pids.items()
    }
    requests = requests_since(cluster, began) / seconds * 60
    private = sum(map(private_mib, pids.values()))
    memory = {process: resident_mib(pid) for process, pid in pids.items()}
    return [
        *(Row(f"{name} {when}", Spread.of([one]), None, "% of a core") for name, one in percent.items()),
        Row(f"both {when}", Spread.of([sum(percent.values())]), MOST_PERCENT, "% of a core"),
        *(Row(f"memory of {name} {when}", Spread.of([one]), None, "MiB") for name, one in memory.items()),
        Row(f"memory of both {when}", Spread.of([sum(memory.values())]), most_mib, "MiB"),
        Row("of this, shared with no other process", Spread.of([private]), None, "MiB"),
        Row(f"requests to the API server in a minute {when}", Spread.of([requests]), MOST_REQUESTS),
    ]


def come_and_go(cluster: RealCluster, driver: DriverNode, plugin: Plugin, count: int, device: str) -> None:
    """Prepare and unprepare that many claims of a device, one after the other; each has its own UID."""
    for number in range(count):
        name = f"passing-{number}"
        claim = make_claim(cluster, name, driver.node.name, device)
        plugin.prepare(claim)
        plugin.unprepare(claim)
        cluster.api.delete(paths.resource_claim(name, "bench"))


def grown(driver: DriverNode, before: Sequence[int]) -> list[Row]:
    """How many more threads and file descriptors each process has than ``before``."""
    return [
        Row(
            f"{process}: more threads and descriptors",
            Spread.of([threads_and_descriptors(driver.process(process).host_pid) - opened]),
            MOST_MORE_THREADS,
        )
        for process, opened in zip(PROCESSES, before, strict=True)
    ]


@click.command()
@click.option("--kubernetes", default=DEFAULT_KUBERNETES, show_default=True, help="The minor version.")
@click.option("--claims", default=5000, show_default=True, help="How many claims come and go.")
def main(kubernetes: str, claims: int) -> None:
    """Measure both processes at rest on a real cluster; exits 1 when a limit is not met."""
    with start_cluster(kubernetes=kubernetes, audit=True) as cluster:
        driver = DriverNode.install(cluster, machine=MACHINE, launcher=AS_POD)
        table = serve(cluster, driver)
        make_namespace(cluster)
        devices = [
            partition_device_name(pci, PROFILE, start)
            for pci in sorted(driver.machine.state.gpus)
            for start in PLACES
        ]
        held: list[pb.Claim] = [
            make_claim(cluster, f"held-{number}", driver.node.name, device)
            for number, device in enumerate(devices)
        ]
        plugin = Plugin(driver.plugin_socket)
        for claim in held:
            plugin.prepare(claim)
        table += at_rest(cluster, driver, "at rest", MOST_MIB)
        before = [threads_and_descriptors(driver.process(process).host_pid) for process in PROCESSES]
        plugin.unprepare(held[-1])
        come_and_go(cluster, driver, plugin, claims, devices[-1])
        plugin.prepare(make_claim(cluster, "again", driver.node.name, devices[-1]))
        table += at_rest(cluster, driver, f"after {claims} claims", MOST_MIB_AFTER)
        table += grown(driver, before)
        plugin.close()
    finish(table, kubernetes, "figure")


if __name__ == "__main__":
    main()
