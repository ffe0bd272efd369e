"""Shows where the time of the kubelet's calls goes, on a real cluster.

The plugin counts its phases in a metric. ``caller and gRPC`` is the rest of what the caller waits for, and
``rest`` is the rest of the plugin. The times are means in milliseconds of claims with a whole GPU each, one
by one and eight at once. With ``--busy`` another thread of the plugin calculates all the time, as a check of
the hardware or a scrape of the metrics does for some milliseconds.
"""

from __future__ import annotations

import re
import runpy
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

import click

from driver.process.metrics.registry import Phase
from envtest.real.build import DEFAULT_KUBERNETES
from envtest.real.startup import start_cluster
from gpuctl.demo.driver_node import DriverNode
from proto import dra_v1_pb2 as pb
from tools.bench.__main__ import MACHINE, claims_of, plugin_of
from tools.bench.kubelet_calls import Plugin, make_namespace
from tools.bench.latency import CLAIMS_PER_ROUND
from tools.bench.scrape import free_address, scrape

ROUNDS = 20
COLUMNS = ("prepare", "again", "unprepare", "prepare, 8 at once")
_SUM = re.compile(r"^gpu_dra_(?:operation|phase)_duration_seconds_sum\{(.*)\} (\S+)$", re.MULTILINE)
_PHASE = re.compile(r'phase="(\w+)"')


def seconds_by_phase(address: str) -> dict[str, float]:
    """The seconds that the plugin has spent until now in each phase, and in ``total``, for all claims."""
    found: dict[str, float] = {}
    for labels, seconds in _SUM.findall(scrape(address).decode()):
        named = _PHASE.search(labels)
        phase = named[1] if named else "total"
        found[phase] = found.get(phase, 0.0) + float(seconds)
    return found


def column(address: str, work: Callable[[], float], claims: int) -> dict[str, float]:
    """The mean milliseconds of a claim by phase; ``work()`` returns how long all callers waited in all."""
    before = seconds_by_phase(address)
    waited_ms = work()
    after = seconds_by_phase(address)
    spent = {phase: (after[phase] - before.get(phase, 0.0)) * 1000 for phase in after}
    total = spent.pop("total")
    every = {
        "caller and gRPC": waited_ms - total,
        **{phase: spent.get(phase, 0.0) for phase in get_args(Phase)},
        "rest": total - sum(spent.values()),
        "all": waited_ms,
    }
    return {phase: milliseconds / claims for phase, milliseconds in every.items()}


def columns(address: str, plugin: Plugin, claims: Sequence[pb.Claim]) -> list[Mapping[str, float]]:
    """The times of each column of the table."""
    sums: list[dict[str, float]] = [{} for _ in COLUMNS]

    def at_once() -> float:
        waited: dict[str, float] = {}

        def prepare(claim: pb.Claim) -> float:
            return waited.setdefault(claim.uid, plugin.prepare(claim))

        plugin.at_once(prepare, claims)
        return sum(waited.values())

    for number in range(ROUNDS + 1):
        found = [
            column(address, lambda: sum(map(plugin.prepare, claims)), len(claims)),
            column(address, lambda: sum(map(plugin.prepare, claims)), len(claims)),
            column(address, lambda: sum(map(plugin.unprepare, claims)), len(claims)),
            column(address, at_once, len(claims)),
        ]
        plugin.at_once(plugin.unprepare, claims)
        # The first round does not count: connections and caches warm up in it.
        for total, one in zip(sums, found if number else [], strict=bool(number)):
            for phase, milliseconds in one.items():
                total[phase] = total.get(phase, 0.0) + milliseconds / ROUNDS
    return list(sums)


@click.command()
@click.option("--kubernetes", default=DEFAULT_KUBERNETES, show_default=True, help="The minor version.")
@click.option("--busy", is_flag=True, help="Keep another thread of the plugin busy.")
def main(kubernetes: str, busy: bool) -> None:
    """Print the mean milliseconds of each phase."""
    with start_cluster(kubernetes=kubernetes) as cluster:
        driver = DriverNode.install(
            cluster, machine=MACHINE, launcher=("tools.bench.phases", "--run") if busy else ()
        )
        address = free_address()
        driver.start_plugin("--metrics-addr", address)
        driver.wait_serving()
        make_namespace(cluster)
        with plugin_of(driver) as plugin:
            found = columns(address, plugin, claims_of(driver)[:CLAIMS_PER_ROUND])
    print(f"| phase | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}")
    for phase in found[0]:
        print(f"| {phase} | {' | '.join(f'{one[phase]:.2f}' for one in found)} |")


def run_beside_a_busy_thread(package: str) -> None:
    """Run a program of the driver while another of its threads calculates."""

    def calculate() -> None:
        while True:
            sum(range(1000))

    threading.Thread(target=calculate, daemon=True).start()
    runpy.run_module(package, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        package = sys.argv[2]
        del sys.argv[1:3]
        run_beside_a_busy_thread(package)
    else:
        main()
