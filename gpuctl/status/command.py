"""The command ``gpuctl status``: nodes, GPUs, what is allocated or free by tier, and what is unwell."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpuctl.cli.cluster_view import ClusterView, kubeconfig_option
from gpuctl.cli.output import emit, output_option
from gpuctl.status.fleet import fleet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuctl.status.fleet import NodeState

UNWELL_EXIT_CODE = 3


@click.command()
@kubeconfig_option
@output_option
def status(kubeconfig: Path | None, output: str) -> None:
    """Show the nodes with GPUs: what is allocated or free by tier, and what is unwell.

    Forms of one GPU exclude each other: "free now" are the devices that a claim could have at this moment,
    each by itself, and how many of them together; "excluded" are those whose GPU is taken in another form.
    Of shared devices "free now" are those with room, and for how many claims that ask for no amount.

    Exit codes: 0 when all is well, 3 when a device is tainted or a pool cannot be used, 1 for a cluster that
    cannot be reached, 2 for a wrong command line.
    """
    view = ClusterView.connect(kubeconfig)
    nodes = fleet(view.slices(), view.claims())
    emit(output, {"nodes": [asdict(node) for node in nodes]}, lambda: _picture(nodes))
    if any(node.unwell or node.pool_problem for node in nodes):
        click.get_current_context().exit(UNWELL_EXIT_CODE)


def _picture(nodes: Sequence[NodeState]) -> RenderableType:
    if not nodes:
        return Text("no node publishes GPUs of this driver")
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("node", "GPU", "tier"):
        table.add_column(heading, overflow="fold")
    for heading in ("devices", "allocated", "free now", "excluded", "unwell", "claims"):
        table.add_column(heading, justify="right", no_wrap=True)
    for node in nodes:
        for tier, count in sorted(node.tiers.items()):
            together = "" if count.free == count.at_once else f", {count.at_once} at once"
            shares = "" if count.claims_left is None else f", {count.claims_left} claims"
            numbers = (count.devices, count.allocated, f"{count.free}{together}{shares}")
            rest = (count.excluded, count.unwell, count.claims)
            table.add_row(node.name, node.product or "-", tier, *map(str, (*numbers, *rest)))
        if not node.tiers:
            table.add_row(node.name, "-", "nothing offered")
    lines = [
        f"{node.name}: nothing of this pool can be allocated: {node.pool_problem}"
        for node in nodes
        if node.pool_problem
    ]
    lines += [
        f"{node.name}: {device.device} is unwell: {', '.join(device.taints)}"
        for node in nodes
        for device in node.unwell
    ]
    lines = lines or ["all is well"]
    lines += [
        f"{node.name}: {device.device}: no partitions: {device.reason}"
        for node in nodes
        for device in node.no_partitions
    ]
    return Group(table, Text("\n".join(lines)))
