"""Measures the driver's processes while nothing happens: CPU, and requests to the API server.

The node has eight GPUs with 56 partitions, none of which is allocated. Both processes run with the intervals
of a production node.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import click

from envtest.real.build import DEFAULT_KUBERNETES
from envtest.real.cluster import RealCluster
from envtest.real.startup import start_cluster
from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.demo.driver_node import DriverNode
from tools.bench.process_use import cpu_seconds
from tools.bench.table import Row, Spread, finish

MACHINE = "hgx-h100"
PROFILE_ID, COMPUTE_PROFILE_ID = 19, 0
PROCESSES = ("kubeletplugin", "controller")
SETTLE_SECONDS = 40.0
"""More than two rounds of the controller, so that the work of a start is done."""

MEASURED_SECONDS = 60.0
MOST_PERCENT = 1.1
USER_AGENTS = "gpu-dra-"


def cut(machine: FakeMachine) -> int:
    """Make as many of the smallest partitions as fit on every GPU; returns how many there are."""
    nvml = machine.nvml()
    nvml.init()
    for index in range(nvml.device_count()):
        device = nvml.device_by_index(index)
        device.set_mig_mode(enabled=True)
        for placement in device.gpu_instance_placements(PROFILE_ID):
            made = device.create_gpu_instance(PROFILE_ID, placement)
            device.create_compute_instance(made.id, COMPUTE_PROFILE_ID)
    count = sum(len(nvml.device_by_index(index).mig_devices()) for index in range(nvml.device_count()))
    nvml.shutdown()
    return count


def requests_since(cluster: RealCluster, began: datetime) -> int:
    """How many requests of the driver the API server has received since then, by its audit log."""
    stamp = began.strftime("%Y-%m-%dT%H:%M:%S.%f")
    return sum(
        event.get("userAgent", "").startswith(USER_AGENTS) and event["requestReceivedTimestamp"] >= stamp
        for event in cluster.audit_events()
    )


def at_rest(cluster: RealCluster, driver: DriverNode) -> list[Row]:
    """The CPU of each process and of both, in percent of a core, and the requests of a minute."""
    partitions = cut(driver.machine)
    driver.start_plugin()
    driver.start_controller()
    driver.wait_serving()
    time.sleep(SETTLE_SECONDS)
    began, started = datetime.now(UTC), time.monotonic()
    pids = {process: driver.process(process).host_pid for process in PROCESSES}
    before = {process: cpu_seconds(pid, children=True) for process, pid in pids.items()}
    time.sleep(MEASURED_SECONDS)
    seconds = time.monotonic() - started
    percent = {
        process: (cpu_seconds(pid, children=True) - before[process]) / seconds * 100
        for process, pid in pids.items()
    }
    requests = requests_since(cluster, began) / seconds * 60
    of_a_core = "% of a core"
    return [
        *(Row(f"{name} at rest", Spread.of([percent[name]]), None, of_a_core) for name in PROCESSES),
        Row(
            f"both, with {partitions} partitions of 8 GPUs",
            Spread.of([sum(percent.values())]),
            MOST_PERCENT,
            of_a_core,
        ),
        Row("requests to the API server in a minute", Spread.of([requests]), 0.0),
    ]


@click.command()
@click.option("--kubernetes", default=DEFAULT_KUBERNETES, show_default=True, help="The minor version.")
def main(kubernetes: str) -> None:
    """Measure both processes at rest on a real cluster; exits 1 when a limit is not met."""
    with start_cluster(kubernetes=kubernetes, audit=True) as cluster:
        table = at_rest(cluster, DriverNode.install(cluster, machine=MACHINE))
    finish(table, kubernetes, "figure")


if __name__ == "__main__":
    main()
