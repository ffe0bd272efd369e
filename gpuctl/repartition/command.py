"""The command ``gpuctl repartition``: changes the static partitions of a node, step by step."""

from __future__ import annotations

from pathlib import Path

import click

from gpuctl.cli.cluster_options import cluster_options, nodes
from gpuctl.cli.output import output_option
from gpuctl.plan.machine_options import machine_option


@click.command()
@click.argument("node", shell_complete=nodes)
@click.option("--layout", help="A layout such as all-balanced or all-1g.10gb, or profiles: 1g,1g,2g,3g.")
@click.option("--mig-config", metavar="FILE:NAME", help="A configuration in a mig-parted file.")
@click.option("--gpu", "addresses", multiple=True, metavar="ADDRESS", help="Only the GPU at a PCI address.")
@machine_option(what="A machine, or a machine file, with such GPUs: for a model that is not built in.")
@click.option("--yes", is_flag=True, help="Do it: cordon, evict, wait for your commands, uncordon.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=1800.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait in total, with --yes.",
)
@cluster_options
@output_option()
def repartition(
    node: str,
    layout: str | None,
    mig_config: str | None,
    addresses: tuple[str, ...],
    machine: str | None,
    yes: bool,
    timeout: float,
    kubeconfig: Path | None,
    context: str | None,
    output: str,
) -> None:
    """Change the static MIG partitions of the GPUs of NODE, without taking a GPU from a running pod.

    Shows the pods in the way, the steps, and the commands that you have to run on the node. Without --yes
    nothing happens. With it the node is cordoned, the pods that use the GPUs are evicted
    (PodDisruptionBudgets are kept), the commands are printed, and once the node publishes the wanted
    partitions it is uncordoned. GPUs whose partitions the driver makes need none of this: change their node
    configuration.

    Exit codes: 0 when the plan is shown, or with --yes when all is as wanted; 3 with --yes when it is not
    (the node stays cordoned); 1 for a node, layout or GPU that cannot be used, or a cluster that cannot be
    reached; 2 for a wrong command line.
    """
    from gpuctl.cli.cluster import connect_client
    from gpuctl.plan.partitions import read_layout
    from gpuctl.repartition import run
    from gpuctl.repartition.wanted import MigConfig

    if (layout is None) == (mig_config is None):
        raise click.UsageError("name a layout with --layout, or one of mig-parted's with --mig-config")
    chosen = read_layout(layout) if layout is not None else MigConfig.read(str(mig_config))
    client = connect_client(kubeconfig, context)
    plan = run.plan_node_change(client, node, chosen, addresses, machine)
    if yes:
        run.repartition(client, plan, timeout, output)
    else:
        run.show(plan, output)
