"""Measures how many pods a second the scheduler of Kubernetes places, for each way to offer GPUs."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

import click

from envtest.real.build import DEFAULT_KUBERNETES, VERSIONS
from envtest.real.cluster import RealCluster
from tools.bench.scheduler_cluster import Pace, control_plane_alone, measure
from tools.bench.scheduler_nodes import MACHINE, MODES, create_nodes, node_names, slices

LEAST_OF_WHOLE = 0.8
"""What layouts must reach of the pace of whole GPUs."""

_PODS_PER_NODE = 6
"""Of eight GPUs, so that whole GPUs do not run out."""
_MOST_PODS = 400


@dataclass(frozen=True, slots=True)
class Best:
    """The best of some measurements of one mode: each figure from the round in which it was best."""

    pods_per_second: float
    processor_ms_per_pod: float


class Numbers(click.ParamType[tuple[int, ...]]):
    """Numbers joined by commas."""

    name = "N,N,..."

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The numbers, each at least 1."""
        try:
            numbers = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            numbers = ()
        if not numbers or min(numbers) < 1:
            self.fail(f"{value!r} is not a list of numbers such as 10,30,100", param, ctx)
        return numbers


def paces(cluster: RealCluster, count: int, rounds: int, seconds: float) -> dict[str, Best]:
    """The best of some rounds by the mode's name, on ``count`` nodes: all else on the machine only slows.

    Each round begins with another mode, so that none is always the first on a fresh server or the last
    on an old one.
    """
    names = node_names(count)
    pods = min(count * _PODS_PER_NODE, _MOST_PODS)
    found: dict[str, list[Pace]] = {mode.name: [] for mode in MODES}
    for number in range(rounds):
        first = number % len(MODES)
        for mode in (*MODES[first:], *MODES[:first]):
            pace = measure(cluster, slices(mode, names), mode.device_class, pods, seconds)
            found[mode.name].append(pace)
            told = f"{pace.bound} pods in {pace.seconds:.2f} s, {pace.processor_ms_per_pod:.1f} ms each"
            click.echo(f"  {count} nodes, {mode.says}: {told}", err=True)
    return {
        name: Best(
            max(pace.pods_per_second for pace in some), min(pace.processor_ms_per_pod for pace in some)
        )
        for name, some in found.items()
    }


def broken(rates: dict[int, dict[str, Best]]) -> list[str]:
    """Which sizes of cluster break the limit, in words."""
    return [
        f"a layout reaches {ratio:.2f} of whole GPUs on {count} nodes, less than {LEAST_OF_WHOLE:g}"
        for count, by_mode in rates.items()
        if (ratio := by_mode["layout"].pods_per_second / by_mode["whole"].pods_per_second) < LEAST_OF_WHOLE
    ]


def print_table(rates: dict[int, dict[str, Best]], kubernetes: str) -> None:
    """Print pods a second, their ratio to whole GPUs, and the processor's time, as Markdown."""
    heads = ("Kubernetes " + kubernetes, *(f"{count} nodes" for count in rates))
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for mode in MODES:
        cells = []
        for by_mode in rates.values():
            best = by_mode[mode.name]
            ratio = best.pods_per_second / by_mode["whole"].pods_per_second
            cells.append(f"{best.pods_per_second:.0f} ({ratio:.2f}), {best.processor_ms_per_pod:.1f} ms")
        print("| " + " | ".join((mode.says, *cells)) + " |")
    print("\nPods a second (of whole GPUs), and what a pod takes of one processor in the scheduler.")
    cores, linux = os.cpu_count(), platform.release()
    print(f"{MACHINE} with 8 GPUs on each node; {cores} cores for everything, Linux {linux}.")


@click.command()
@click.option(
    "--kubernetes",
    type=click.Choice(list(VERSIONS)),
    default=DEFAULT_KUBERNETES,
    show_default=True,
    help="The minor version.",
)
@click.option("--nodes", type=Numbers(), default="10,30,100", show_default=True, help="Sizes of the cluster.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Rounds per size.")
@click.option("--seconds", type=float, default=10.0, show_default=True, help="Limit of one measurement.")
def main(kubernetes: str, nodes: tuple[int, ...], rounds: int, seconds: float) -> None:
    """Measure the real scheduler (root); exits 1 when a layout is slower than 0.8 of whole GPUs."""
    rates: dict[int, dict[str, Best]] = {}
    with control_plane_alone(kubernetes) as cluster:
        made = 0
        for count in sorted(nodes):
            create_nodes(cluster.api, node_names(count)[made:])
            made = count
            rates[count] = paces(cluster, count, rounds, seconds)
    print_table(rates, kubernetes)
    problems = broken(rates)
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
