"""The command ``gpuctl simulate``: whether a workload fits on some machines, or on a live cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.cluster_options import cluster_options
from gpuctl.cli.output import document, emit, exit_amiss, output_option
from gpuctl.plan.machine_options import check_exists, config_options, read_labels

if TYPE_CHECKING:
    from gpuctl.simulate.cluster import SimulatedCluster

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
  priority: 100            # those with more get devices first; absent: 0
  gang: 4                  # each is a gang of so many pods, placed together or not at all; absent: 1
  claims:                  # each is the spec of a ResourceClaim
  - devices:
      requests:
      - name: gpus
        exactly: {deviceClassName: gpu.nvidia.com, count: 2}
"""


@click.command(context_settings={"show_default": True}, epilog=WORKLOAD_HELP)
@click.option(
    "--nodes",
    metavar="MACHINE=COUNT,...",
    help="How many nodes of which machines, with or without labels: hgx-h100=4,t4[pool=dev]=2.",
)
@click.option("--from-cluster", is_flag=True, help="Start from a live cluster, with its claims in use.")
@cluster_options
@click.option("--workload", required=True, type=_FILE, help="The pods: a file as in docs/gpuctl.md.")
@config_options("The node configuration of all nodes.")
@click.option(
    "--classes",
    type=_FILE,
    multiple=True,
    help="DeviceClasses instead of the built-in ones or those of the cluster.",
)
@click.option("--seed", default=1, help="The seed for the choice among the nodes that fit.")
@output_option()
def simulate(
    nodes: str | None,
    from_cluster: bool,
    kubeconfig: Path | None,
    context: str | None,
    workload: Path,
    config: Path | None,
    node_labels: dict[str, str] | None,
    classes: tuple[Path, ...],
    seed: int,
    output: str,
) -> None:
    """Say whether the pods of a workload fit on simulated nodes: which wait and why, and what is left.

    Devices are allocated by the scheduler's rules; CPU, memory and taints of nodes are ignored. Pods come by
    priority, then in the order of the file. The same seed gives the same result. The nodes are those of
    --nodes, which need no cluster and no GPU, or with --from-cluster those of a live cluster that are not
    cordoned: claims with devices there keep them.

    Exit codes: 0 when every pod fits, 3 when some wait, 1 for a file or a cluster that cannot be used, 2 for
    a wrong command line.
    """
    from gpuctl.simulate import placing
    from gpuctl.simulate.results import picture
    from gpuctl.simulate.workload import load_workload

    if from_cluster == (nodes is not None):
        raise click.UsageError("give --nodes, or start from a cluster with --from-cluster")
    if from_cluster and config:
        raise click.UsageError("--config describes --nodes, and cannot be combined with --from-cluster")
    groups = load_workload(workload)
    cluster = (
        _planned(nodes, config, node_labels, classes)
        if nodes is not None
        else _live(kubeconfig, context, classes)
    )
    result = placing.simulate(cluster, groups, seed)
    emit(output, document("Simulation", result), lambda: picture(result))
    if any(group.waiting for group in result.groups):
        exit_amiss()


def _planned(
    nodes: str, config: Path | None, labels: dict[str, str] | None, classes: Sequence[Path]
) -> SimulatedCluster:
    """The nodes of ``hgx-h100=4,t4[pool=dev]=2``; ``labels`` are those of all nodes. Raises UsageError."""
    from gpuctl.plan.planned import plan_node
    from gpuctl.simulate.cluster import load_classes, planned_cluster

    read = [_NODES.fullmatch(text) for text in _BETWEEN_NODES.split(nodes)]
    found = [match for match in read if match is not None]
    if len(found) < len(read):
        raise click.UsageError(f"--nodes {nodes}: write machines with their number: hgx-h100=4,a30-quad=2")
    counts = [int(one["count"]) for one in found]
    if not all(counts) or sum(counts) > _MOST_NODES:
        raise click.UsageError(f"--nodes {nodes}: between 1 and {_MOST_NODES:,} nodes can be simulated")
    # None says that labels are not known. If some of the nodes have labels, the others have none.
    if labels is None and any(one["labels"] is not None for one in found):
        labels = {}
    published = []
    for count, one in zip(counts, found, strict=True):
        check_exists(one["machine"])
        its_labels = labels if one["labels"] is None else {**(labels or {}), **read_labels(one["labels"])}
        published.append((count, plan_node(one["machine"], "node", config, its_labels).slices))
    return planned_cluster(published, load_classes(classes))


def _live(kubeconfig: Path | None, context: str | None, classes: Sequence[Path]) -> SimulatedCluster:
    from gpuctl.cli.cluster import ClusterView
    from gpuctl.simulate.cluster import live_cluster, load_classes

    return live_cluster(ClusterView.connect(kubeconfig, context), load_classes(classes) if classes else ())
