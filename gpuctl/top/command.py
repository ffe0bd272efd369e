"""The command ``gpuctl top``: how much each claim uses of the GPUs that it holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.cluster_options import cluster_options, nodes
from gpuctl.cli.output import document, emit, output_option

if TYPE_CHECKING:
    from gpuctl.top.usage import By


@click.command()
@click.argument("node", required=False, shell_complete=nodes)
@click.option(
    "--by",
    type=click.Choice(("claim", "namespace", "class", "node")),
    default="claim",
    show_default=True,
    help="What to sum up; `claim` has a row for each device.",
)
@cluster_options
@output_option("wide")
def top(node: str | None, by: By, kubeconfig: Path | None, context: str | None, output: str) -> None:
    """Show how much claims use of the GPUs that they hold, of all nodes or of NODE, the largest use first.

    Slices and claims say what is held. Use and load come from the metrics of the kubelet plugins, which are
    read through the API server: this needs the right to get pods/proxy in the driver's namespace, and plugins
    that serve metrics. Without them the used memory of shares comes from the status of claims, and unknown
    values are ``-``; lines below say why.

    Exit codes: 0, 1 for a node that publishes no GPU or a cluster that cannot be reached, 2 for a wrong
    command line.
    """
    from driver.errors import ConfigError
    from gpuctl.cli.cluster import ClusterView, connect_client
    from gpuctl.fleet.cluster import views_of
    from gpuctl.top.picture import picture
    from gpuctl.top.usage import GpuUsage, Lacking, by_use, grouped, scrape, usages

    client = connect_client(kubeconfig, context)
    view = ClusterView(client)
    views = [one for one in views_of(view.slices(), view.claims()) if node in (None, one.name)]
    if node is not None and not views:
        raise ConfigError(
            f"{node} publishes no GPU of this driver", "`gpuctl status -o name` lists the nodes that do"
        )
    holding = [one for one in views if any(gpu.holdings for gpu in one.gpus)]
    measured, lacking = scrape(client, view, [one.name for one in holding])
    lacking += [Lacking(one.name, one.state.missing) for one in views if one.state.unpublished]
    devices = by_use(each for one in holding for each in usages(one, measured.get(one.name, {})))
    usage = GpuUsage(by, tuple(grouped(devices, by)), tuple(devices), tuple(lacking))
    emit(output, document("GpuUsage", usage), lambda: picture(usage, wide=output == "wide"))
