"""The command ``gpuctl simulate``: how a workload would fit on some machines, or on a live cluster."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.cluster_options import cluster_options
from gpuctl.cli.output import document, emit, output_option
from gpuctl.plan.machine_options import config_options, machine_option, read_labels

if TYPE_CHECKING:
    from gpuctl.simulate.cluster import SimulatedCluster
    from gpuctl.simulate.results import Cost, GroupResult, Result
    from gpuctl.simulate.trace import Arrival
    from gpuctl.simulate.workload import PodGroup

_MOST_NODES = 100_000
_BETWEEN_NODES = re.compile(r",(?![^\[]*\])")
_NODES = re.compile(r"(?P<machine>[^\[]+)(?:\[(?P<labels>[^\]]*)\])?=(?P<count>[0-9]{1,9})")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

WORKLOAD_HELP = """The workload is YAML:

\b
version: v1
pods:
- name: train
  count: 200
  starts_seconds: 0        # when the first one starts
  every_seconds: 30        # time between one start and the next
  lasts_seconds: 3600      # how long each runs; absent: forever
  busy_gpus: 1.9           # how many GPUs each keeps busy; absent: not known
  priority: 100            # those with more get devices first; absent: 0
  gang: 4                  # each is a gang of so many pods, placed together or not at all; absent: 1
  claims:                  # each is the spec of a ResourceClaim
  - devices:
      requests:
      - name: gpus
        exactly: {deviceClassName: gpu.nvidia.com, count: 2}

A trace is CSV with the name of a group in each row; groups then need no count. An arrival is in
seconds or a moment such as 2026-03-01T08:00:00Z, a duration in seconds. The last two columns
may be left out or empty: pods last as long as their group says, and each row is one pod.

\b
arrival,pod,duration,count
0,train,3600,4
90.5,train,,
"""


@click.command(context_settings={"show_default": True}, epilog=WORKLOAD_HELP)
@click.option(
    "--nodes",
    help="How many nodes of --machine, or of several machines, with or without labels: "
    "hgx-h100=4,t4[pool=dev]=2.",
)
@machine_option()
@click.option("--from-cluster", is_flag=True, help="Start from a live cluster, with its claims in use.")
@cluster_options
@click.option("--workload", required=True, type=_FILE, help="The pods: a file as described below.")
@click.option("--trace", type=_FILE, help="When pods come and how long they run: CSV as described below.")
@config_options("The node configuration of all nodes.")
@click.option(
    "--classes",
    type=_FILE,
    multiple=True,
    help="DeviceClasses instead of the built-in ones or those of the cluster.",
)
@click.option(
    "--hours", type=click.FloatRange(min=0, min_open=True), help="How long to run, in simulated time."
)
@click.option(
    "--gpu-hour-cost", type=click.FloatRange(min=0), help="The cost of a GPU per hour, in any currency."
)
@click.option("--seed", default=1, help="The seed for the choice among the nodes that fit.")
@output_option()
def simulate(
    nodes: str | None,
    machine: str | None,
    from_cluster: bool,
    kubeconfig: Path | None,
    context: str | None,
    workload: Path,
    trace: Path | None,
    config: Path | None,
    node_labels: dict[str, str] | None,
    classes: tuple[Path, ...],
    hours: float | None,
    gpu_hour_cost: float | None,
    seed: int,
    output: str,
) -> None:
    """Place the pods of a workload on simulated nodes: which run, which wait and why, and what is left.

    Devices are allocated by the scheduler's rules; CPU, memory and taints of nodes are ignored. The same seed
    gives the same result. The nodes are those of --nodes, which need no cluster and no GPU, or with
    --from-cluster those of a live cluster that are not cordoned: claims with devices there keep them.

    GPU-hours are counted over --hours; without it, until all pods have come and all that fit are placed.

    With --trace it also shows the queue, the GPUs that each class has, and fragmentation over
    time. Fragmentation is the part of the free GPU capacity that lies on GPUs in partial use.

    Exit codes: 0 when every pod was placed, 3 when some still wait at the end, 1 for a file or a cluster that
    cannot be used, 2 for a wrong command line.
    """
    from rich.console import Console
    from rich.progress import Progress

    from gpuctl.simulate.picture import picture
    from gpuctl.simulate.results import cost_of
    from gpuctl.simulate.simulation import Simulation
    from gpuctl.simulate.timeline import Timeline
    from gpuctl.simulate.trace import load_trace
    from gpuctl.simulate.workload import load_workload

    if from_cluster == (nodes is not None):
        raise click.UsageError("give --nodes, or start from a cluster with --from-cluster")
    if from_cluster and (machine or config):
        raise click.UsageError(
            "--machine and --config describe --nodes, and cannot be combined with --from-cluster"
        )
    machines = _read_machines(nodes, machine) if nodes is not None else ()
    groups = load_workload(workload, traced=trace is not None)
    arrivals = load_trace(trace, groups) if trace is not None else []
    until = None if hours is None else _until(hours, groups, arrivals)
    cluster = (
        _planned(machines, config, node_labels, classes) if machines else _live(kubeconfig, context, classes)
    )
    timeline = Timeline(cluster) if trace is not None else None
    simulation = Simulation(cluster, groups, seed, until, arrivals, timeline)
    started = time.perf_counter()
    errors = Console(stderr=True)
    # Where nobody watches, rich would leave an empty line behind.
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(
            "pods", total=sum(one.count for one in groups) + sum(one.pods for one in arrivals)
        )
        result = simulation.run(lambda come: bar.update(task, completed=come))
    seconds = time.perf_counter() - started
    cost = None if gpu_hour_cost is None else cost_of(result, gpu_hour_cost)
    emit(output, document("Simulation", _data(result, cost)), lambda: picture(result, cost, seconds))
    if any(group.waiting for group in result.groups):
        click.get_current_context().exit(3)


def _until(hours: float, groups: Sequence[PodGroup], arrivals: Sequence[Arrival]) -> float:
    """The end in simulated seconds; raises UsageError if a pod comes later."""
    late = [group.name for group in groups if group.last_seconds > hours * 3600]
    late += [groups[one.group].name for one in arrivals[-1:] if one.seconds > hours * 3600]
    if late:
        raise click.UsageError(f"--hours {hours:g} ends before the last pods of {', '.join(late)} come")
    return hours * 3600


def _planned(
    machines: Sequence[_Nodes],
    config: Path | None,
    labels: dict[str, str] | None,
    classes: Sequence[Path],
) -> SimulatedCluster:
    from gpuctl.plan.planned import plan_node
    from gpuctl.simulate.cluster import load_classes, planned_cluster

    published = []
    for one in machines:
        its_labels = labels if one.labels is None else {**(labels or {}), **one.labels}
        published.append((one.count, plan_node(one.machine, "node", config, its_labels).slices))
    return planned_cluster(published, load_classes(classes))


def _live(kubeconfig: Path | None, context: str | None, classes: Sequence[Path]) -> SimulatedCluster:
    from gpuctl.cli.cluster import ClusterView
    from gpuctl.simulate.cluster import live_cluster, load_classes

    return live_cluster(ClusterView.connect(kubeconfig, context), load_classes(classes) if classes else ())


def _data(result: Result, cost: Cost | None) -> dict[str, Any]:
    """The result for scripts; unknown values are left out, but those of a group are null."""
    return {
        "groups": [_group(group) for group in result.groups],
        "tiers": result.tiers,
        "gpus": result.gpus,
        "classes": result.classes,
        "fragments": result.fragments,
        **({} if result.busy_hours is None else {"busyHours": result.busy_hours}),
        **({} if cost is None else {"cost": cost}),
        "endedSeconds": result.ended_seconds,
        "mostWaiting": result.most_waiting,
        **({} if result.course is None else {"course": result.course}),
    }


def _group(group: GroupResult) -> dict[str, Any]:
    from gpuctl.simulate.picture import mean_wait

    return {
        "name": group.name,
        "pods": group.pods,
        "placed": group.placed,
        "waiting": group.waiting,
        "meanWaitSeconds": mean_wait(group),
        "medianWaitSeconds": group.median_wait,
        "p95WaitSeconds": group.p95_wait,
        "longestWaitSeconds": max(group.waits_seconds, default=None),
        "error": group.error,
        "whySeconds": group.why_seconds,
        "why": group.why,
    }


@dataclass(frozen=True, slots=True)
class _Nodes:
    """``count`` nodes with one machine; ``labels`` are None if the flag does not mention labels."""

    machine: str
    count: int
    labels: Mapping[str, str] | None = None


def _read_machines(nodes: str, machine: str | None) -> tuple[_Nodes, ...]:
    """The nodes: ``4`` of ``--machine``, or ``hgx-h100=4,a30-quad[pool=notebooks]=2``. Raises UsageError."""
    found: tuple[_Nodes, ...]
    if machine is not None:
        if not nodes.isascii() or not nodes.isdigit():
            raise click.UsageError(
                f"--nodes {nodes} is not a number: with --machine it is the number of equal nodes"
            )
        found = (_Nodes(machine, int(nodes)),)
    else:
        found = _with_labels([_nodes_of(one) for one in _BETWEEN_NODES.split(nodes)])
    total = sum(one.count for one in found)
    if not all(one.count for one in found) or total > _MOST_NODES:
        raise click.UsageError(f"--nodes {nodes}: between 1 and {_MOST_NODES:,} nodes can be simulated")
    return found


def _with_labels(found: Sequence[_Nodes]) -> tuple[_Nodes, ...]:
    """If some of the nodes have labels, the others have none."""
    # An empty mapping says that a node has no labels; None says that its labels are not known.
    if all(one.labels is None for one in found):
        return tuple(found)
    return tuple(replace(one, labels=one.labels or {}) for one in found)


def _nodes_of(text: str) -> _Nodes:
    match = _NODES.fullmatch(text)
    if match is None:
        raise click.UsageError(
            f"--nodes {text}: give their --machine, or write machines: hgx-h100=4,a30-quad=2"
        )
    labels = None if match["labels"] is None else read_labels(match["labels"])
    return _Nodes(match["machine"], int(match["count"]), labels)
