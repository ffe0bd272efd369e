"""Runs the benchmarks of claims on a real cluster: beside the floor, or beside a former version."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import click

from envtest.real.build import DEFAULT_KUBERNETES
from envtest.real.startup import start_cluster
from gpuctl.demo.driver_node import DriverNode
from proto import dra_v1_pb2 as pb
from tools.bench.claims import make_namespace
from tools.bench.contenders import MANY, claims_of, floor_beside, plugin_of
from tools.bench.former_version import former_version
from tools.bench.latency import Contender, Rounds, measure
from tools.bench.lifecycle import resident_mib, slices_back, start_to_published
from tools.bench.table import Row, Spread, exit_status, print_table

MACHINE = "dgx2"
RESTARTS = 3
CALLS = {
    "prepare": "prepare, one at a time",
    "again": "prepare again",
    "unprepare": "unprepare",
    "eight_at_once": "8 claims at once",
    "all_at_once": f"{MANY} claims at once on 16 GPUs",
}
FLOOR_LIMITS = {
    "prepare": 1.25,
    "again": 1.5,  # the hardware and the driver's files are looked at anew, which the floor does not know
    "unprepare": 1.4,
    "eight_at_once": 1.4,
    "all_at_once": 1.6,  # four claims of a GPU wait for each other
}
FORMER_LIMITS = dict.fromkeys(CALLS, 1.05)


def ratio_rows(ratios: Mapping[str, Spread], limits: Mapping[str, float]) -> list[Row]:
    """The lines for the calls, each a ratio."""
    return [Row(what, ratios[name], limits.get(name)) for name, what in CALLS.items()]


def start(driver: DriverNode) -> None:
    """Have the driver serve on its node."""
    driver.start_plugin()
    driver.start_controller()
    driver.wait_serving()


def beside_floor(driver: DriverNode, claims: Sequence[pb.Claim], rounds: Rounds) -> list[Row]:
    """How many times the floor the driver takes."""
    with plugin_of(driver) as plugin, floor_beside(driver, claims) as floor:
        ours, least = measure((Contender(plugin, claims), Contender(floor, claims)), rounds)
    return ratio_rows(ours.beside(least), FLOOR_LIMITS)


def beside_former(
    drivers: Sequence[DriverNode], claims: Sequence[Sequence[pb.Claim]], rounds: Rounds
) -> list[Row]:
    """How many times a former version's time the driver takes.

    ``drivers`` are today's and the former, each on its own node, ``claims`` those of the two nodes.
    """
    with plugin_of(drivers[0]) as ours, plugin_of(drivers[1]) as theirs:
        new, old = measure((Contender(ours, claims[0]), Contender(theirs, claims[1])), rounds)
    return ratio_rows(new.beside(old), FORMER_LIMITS)


def run_beside_floor(kubernetes: str) -> list[Row]:
    """The whole table: calls, starts, memory."""
    with start_cluster(kubernetes=kubernetes) as cluster:
        driver = DriverNode.install(cluster, machine=MACHINE)
        published = Spread.of(start_to_published(driver))
        start(driver)
        make_namespace(cluster)
        table = beside_floor(driver, claims_of(driver), Rounds())
        back = Spread.of([slices_back(driver) for _ in range(RESTARTS)])
        resident = [Spread.of([resident_mib(driver, name)]) for name in ("kubeletplugin", "controller")]
    return [
        *table,
        Row("slices back after a kubelet restart", back, 2.0, "s"),
        Row("start to published", published, 1.1, "s"),
        Row("memory of the plugin", resident[0], 75.0, "MiB"),
        Row("memory of the controller", resident[1], 75.0, "MiB"),
    ]


def run_beside_former(kubernetes: str, commit: str) -> list[Row]:
    """The calls alone, of today's version and of a former one."""
    folder = former_version(commit)
    with start_cluster(2, kubernetes) as cluster:
        # Today's is installed last: both versions have its rights and classes.
        former = DriverNode.install(cluster, 1, MACHINE, packages=folder)
        driver = DriverNode.install(cluster, 0, MACHINE)
        both = (driver, former)
        for one in both:
            start(one)
        make_namespace(cluster)
        return beside_former(both, [claims_of(one) for one in both], Rounds())


@click.command()
@click.option("--kubernetes", default=DEFAULT_KUBERNETES, show_default=True, help="The minor version.")
@click.option("--beside", metavar="COMMIT", help="Compare with the driver of this commit instead.")
def main(kubernetes: str, beside: str | None) -> None:
    """Measure the driver beside a floor, or a former version, in one run; exits 1 when a limit is not met."""
    if beside is None:
        table = run_beside_floor(kubernetes)
        print_table(table, kubernetes)
    else:
        table = run_beside_former(kubernetes, beside)
        print_table(table, kubernetes, f"times {beside}")
    sys.exit(exit_status(table))


if __name__ == "__main__":
    main()
