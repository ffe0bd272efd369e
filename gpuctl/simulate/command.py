"""The command ``gpuctl simulate``: how a workload would fit on a cluster that nobody has yet."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console, Group, RenderableType
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from gpuctl.cli.output import emit, output_option
from gpuctl.node.plan_command import MACHINE_HELP
from gpuctl.node.planned import plan_node
from gpuctl.simulate.device_classes import load_classes
from gpuctl.simulate.simulation import Simulation
from gpuctl.simulate.workload import load_workload

if TYPE_CHECKING:
    from gpuctl.simulate.simulation import GroupResult, Result

WAITING_EXIT_CODE = 3
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(context_settings={"show_default": True})
@click.option(
    "--nodes", required=True, type=click.IntRange(1, 100_000), help="How many like nodes there are."
)
@click.option("--machine", required=True, help=MACHINE_HELP)
@click.option("--workload", required=True, type=_FILE, help="The pods: a file as described below.")
@click.option("--config", type=_FILE, help="The node configuration of all nodes.")
@click.option("--classes", type=_FILE, multiple=True, help="DeviceClasses instead of the shipped ones.")
@click.option("--seed", default=1, help="The chances by which one of the nodes that fit is taken.")
@output_option
def simulate(
    nodes: int,
    machine: str,
    workload: Path,
    config: Path | None,
    classes: tuple[Path, ...],
    seed: int,
    output: str,
) -> None:
    """Place the pods of a workload on simulated nodes and report who got in, who waits, and what is left.

    Devices are given by the scheduler's own rules; CPU and memory are not looked at. Needs no cluster and
    no GPU, and gives the same for the same seed. The workload is YAML:

    \b
    version: v1
    pods:
    - name: train
      count: 200
      starts_seconds: 0        # when the first comes
      every_seconds: 30        # then one each so often
      lasts_seconds: 3600      # how long each runs; absent: for good
      claims:                  # each the spec of a ResourceClaim
      - devices:
          requests:
          - name: gpus
            exactly: {deviceClassName: gpu.nvidia.com, count: 2}

    Exit codes: 0 when every pod was placed, 3 when some still wait at the end, 1 for a file that cannot be
    used, 2 for a wrong command line.
    """
    groups = load_workload(workload)
    slices = plan_node(machine, "node", config).slices
    simulation = Simulation(nodes, slices, load_classes(classes), groups, seed)
    started = time.perf_counter()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("pods", total=sum(group.count for group in groups))
        result = simulation.run(lambda come: bar.update(task, completed=come))
    seconds = time.perf_counter() - started
    emit(output, _data(result), lambda: _picture(result, seconds))
    if any(group.waiting for group in result.groups):
        click.get_current_context().exit(WAITING_EXIT_CODE)


def _data(result: Result) -> dict[str, Any]:
    return {
        "groups": [
            {
                "name": group.name,
                "pods": group.pods,
                "placed": group.placed,
                "waiting": group.waiting,
                "meanWaitSeconds": _mean(group),
                "longestWaitSeconds": max(group.waits_seconds, default=None),
                "error": group.error,
            }
            for group in result.groups
        ],
        "tiers": {tier: asdict(found) for tier, found in result.tiers.items()},
        "fragments": [asdict(one) for one in result.fragments],
        "endedSeconds": result.ended_seconds,
    }


def _mean(group: GroupResult) -> float | None:
    return fmean(group.waits_seconds) if group.waits_seconds else None


def _picture(result: Result, seconds: float) -> RenderableType:
    pods = Table(title="Pods", box=box.SIMPLE_HEAD)
    for heading in ("group", "pods", "placed", "waiting", "mean wait", "longest wait"):
        pods.add_column(heading, justify="left" if heading == "group" else "right", no_wrap=True)
    for group in result.groups:
        longest = max(group.waits_seconds, default=None)
        waits = ("-" if wait is None else f"{wait:,.0f} s" for wait in (_mean(group), longest))
        pods.add_row(group.name, *(f"{n:,}" for n in (group.pods, group.placed, group.waiting)), *waits)
    tiers = Table(title="Devices at the end", box=box.SIMPLE_HEAD)
    for heading in ("tier", "devices", "in use", "free", "at most in use"):
        tiers.add_column(heading, justify="left" if heading == "tier" else "right")
    for tier, found in sorted(result.tiers.items()):
        numbers = (found.devices, found.allocated, found.free, found.most_allocated)
        tiers.add_row(tier, *(f"{n:,}" for n in numbers))
    lines = [f"{group.name} can never be placed: {group.error}" for group in result.groups if group.error]
    lines += [
        f"of {one.free:,} free whole GPUs, {one.usable:,} can serve pods that want {one.gpus} on one node"
        for one in result.fragments
        if one.free
    ]
    placed = sum(group.placed for group in result.groups)
    lines.append(f"{placed:,} placements in {seconds:.1f} s ({placed / max(seconds, 1e-9):,.0f} a second)")
    return Group(pods, tiers, Text("\n".join(lines)))
