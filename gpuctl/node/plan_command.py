"""The command ``gpuctl plan``: the slices that a node with some machine would publish."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Group, RenderableType
from rich.text import Text

from gpuctl.cli.output import emit, output_option
from gpuctl.node.picture import gpu_table, published_gpus
from gpuctl.node.planned import plan_node

if TYPE_CHECKING:
    from gpuctl.node.planned import PlannedNode

MACHINE_HELP = "A shipped machine's name (see the machines folder of the driver), or a machine file."


@click.command()
@click.option("--machine", required=True, help=MACHINE_HELP)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The node configuration; without it every GPU is offered as a whole.",
)
@click.option("--node-name", default="node", show_default=True, help="The node's name.")
@output_option
def plan(machine: str, config: Path | None, node_name: str, output: str) -> None:
    """Show exactly what a node would publish. Needs no cluster and no GPU.

    With -o json or yaml it is a List of ResourceSlices that kubectl applies, as autoscalers that simulate
    nodes want it. Exit codes: 0, 1 for a machine or a configuration that cannot be used, 2 for a wrong
    command line.
    """
    planned = plan_node(machine, node_name, config)
    emit(output, planned.as_list(), lambda: _picture(planned, node_name))


def _picture(planned: PlannedNode, node: str) -> RenderableType:
    counts = [len(one["spec"].get("devices", ())) for one in planned.slices]
    spec = planned.slices[0]["spec"]
    many = "slices" if len(counts) > 1 else "slice"
    counters = sum(len(one["spec"].get("sharedCounters", ())) for one in planned.slices)
    numbers = " + ".join(str(count) for count in counts if count or not counters)
    shared = f", counters of {counters} GPU{'s' * (counters != 1)}" if counters else ""
    where = f"driver {spec['driver']}, pool {spec['pool']['name']}"
    lines = [f"{len(counts)} {many}, {numbers} devices{shared}; {where}"]
    lines += [f"not offered: {what}: {reason}" for what, reason in sorted(planned.withheld.items())]
    return Group(gpu_table(node, published_gpus(planned.slices, ())), Text("\n".join(lines)))
