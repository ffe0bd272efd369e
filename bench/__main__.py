"""Runs all benchmarks on a real cluster and prints floor, ours and ratio side by side."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from bench.claims import make_claim, make_namespace
from bench.kubelet_calls import Plugin
from bench.latency import Latency, measure
from bench.lifecycle import median_of, resident_mib, slices_back, start_to_published
from driver.devices.names import gpu_device_name
from envtest.client.shipped import PACKAGE_ROOT
from envtest.driver_node import DriverNode
from envtest.real.build import DEFAULT_KUBERNETES
from envtest.real.startup import start_cluster

MACHINE = "dgx2"
MANY = 64


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; a limit is on ``ours``, or on the ratio; None where none is set."""

    what: str
    unit: str
    floor: float | None
    ours: float
    limit: float | None
    limits_ratio: bool = False

    @property
    def ratio(self) -> float | None:
        """How many times the floor ours takes."""
        return self.ours / self.floor if self.floor else None

    @property
    def holds(self) -> bool:
        """Whether the limit is met."""
        measured = self.ratio or 0.0 if self.limits_ratio else self.ours
        return self.limit is None or measured <= self.limit

    def cells(self) -> tuple[str, ...]:
        """The line's cells as text."""
        limit = f"ratio {self.limit:g}" if self.limits_ratio else f"{self.limit or 0:g} {self.unit}"
        if self.limit is None:
            limit = ""
        return (
            self.what,
            "" if self.floor is None else f"{self.floor:.2f} {self.unit}",
            f"{self.ours:.2f} {self.unit}",
            "" if self.ratio is None else f"{self.ratio:.2f}",
            limit,
            "" if self.limit is None else "yes" if self.holds else "NO",
        )


def rows(floor: Latency, ours: Latency, start: float, back: float, rss: tuple[float, float]) -> list[Row]:
    """The table's lines with their limits."""
    return [
        Row("prepare, one at a time", "ms", floor.prepare, ours.prepare, 1.3, limits_ratio=True),
        Row("prepare again", "ms", None, ours.again, 1.5),
        Row("unprepare", "ms", floor.unprepare, ours.unprepare, 2.0),
        Row("8 claims at once", "ms", floor.eight_at_once, ours.eight_at_once, 60.0),
        Row(f"{MANY} claims at once on 16 GPUs", "ms", floor.all_at_once, ours.all_at_once, None),
        Row("slices back after a kubelet restart", "s", None, back, 2.0),
        Row("start to published", "s", None, start, 1.1),
        Row("memory of the plugin", "MiB", None, rss[0], 75.0),
        Row("memory of the controller", "MiB", None, rss[1], 75.0),
    ]


@contextmanager
def floor_plugin(driver: DriverNode, spec: bytes) -> Iterator[Plugin]:
    """The floor, running in the cluster beside the driver and writing to the same disk and CDI folder."""
    with tempfile.TemporaryDirectory(prefix="floor-", dir=driver.folder) as name:
        folder = Path(name)
        (folder / "spec").write_bytes(spec)
        kubeconfig = driver.cluster.service_account_kubeconfig("gpu-dra-kubeletplugin", driver.node.name)
        command = (
            *(sys.executable, "-m", "bench.floor", str(folder / "f.sock"), str(kubeconfig), str(folder)),
            *(str(driver.node.cdi_dir), str(folder / "spec")),
        )
        process = driver.cluster.processes.start("floor", command, {"PYTHONPATH": str(PACKAGE_ROOT)})
        plugin = Plugin(folder / "f.sock")
        try:
            yield plugin
        finally:
            plugin.close()
            process.stop()


def latencies(driver: DriverNode) -> tuple[Latency, Latency]:
    """The floor's and ours, over the same claims."""
    cluster, node = driver.cluster, driver.node.name
    make_namespace(cluster)
    devices = [gpu_device_name(pci) for pci in sorted(driver.machine.state.gpus)]
    eight = [make_claim(cluster, f"one-{i}", node, device) for i, device in enumerate(devices[:8])]
    many = [
        *eight,
        *(make_claim(cluster, f"one-{i}", node, devices[i]) for i in range(8, 16)),
        *(make_claim(cluster, f"admin-{i}", node, devices[i % 16], admin=True) for i in range(MANY - 16)),
    ]

    ours = Plugin(driver.plugin_socket)
    ours.prepare(eight[0])
    (spec,) = driver.node.cdi_dir.glob(f"*{eight[0].uid}.json")
    data = spec.read_bytes()
    ours.unprepare(eight[0])
    with floor_plugin(driver, data) as floor:
        found = measure((floor, ours), eight, many)
    ours.close()
    return found[0], found[1]


def print_table(table: list[Row], kubernetes: str) -> None:
    """Print the table as Markdown, with the machine it was made on."""
    heads = ("what", "floor", "ours", "ratio", "limit", "met")
    lines = [heads, *(row.cells() for row in table)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for number, line in enumerate(lines):
        print("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    python = platform.python_version()
    print(f"\nKubernetes {kubernetes}, {os.cpu_count()} cores, Linux {platform.release()}, Python {python}.")


@click.command()
@click.option("--kubernetes", default=DEFAULT_KUBERNETES, show_default=True, help="The minor version.")
def main(kubernetes: str) -> None:
    """Measure the driver beside a floor in the same run; exits 1 when a limit is not met."""
    with start_cluster(kubernetes=kubernetes) as cluster:
        driver = DriverNode.install(cluster, machine=MACHINE)
        start = start_to_published(driver)
        driver.start_plugin()
        driver.start_controller()
        driver.wait_serving()
        floor, ours = latencies(driver)
        back = median_of(3, lambda: slices_back(driver))
        rss = (resident_mib(driver, "kubeletplugin"), resident_mib(driver, "controller"))
        table = rows(floor, ours, start, back, rss)
    print_table(table, kubernetes)
    if not all(row.holds for row in table):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
