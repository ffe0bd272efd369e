"""The command ``gpuctl plan``: the slices that a node with some machine would publish."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.output import emit, output_option
from gpuctl.plan.machine_options import config_options, machine_option

if TYPE_CHECKING:
    from rich.console import RenderableType

    from driver.health.health_rules import HealthRules
    from gpuctl.plan.planned import PlannedNode


@click.command()
@machine_option(required=True)
@config_options("The node configuration; default: every GPU is offered as a whole.")
@click.option("--node-name", default="node", show_default=True, help="The node's name.")
@output_option("name")
def plan(
    machine: str, config: Path | None, node_labels: dict[str, str] | None, node_name: str, output: str
) -> None:
    """Show exactly what a node would publish. Needs no cluster and no GPU.

    With -o json or yaml it prints a List of ResourceSlices for kubectl apply, as needed by autoscalers that
    simulate nodes.

    Exit codes: 0, 1 for a machine or a configuration that cannot be used, 2 for a wrong command line.
    """
    from gpuctl.plan.planned import plan_node

    planned = plan_node(machine, node_name, config, node_labels)
    emit(
        output,
        planned.as_list(),
        lambda: _picture(planned, node_name),
        lambda: map(_name, planned.slices),
    )


def _name(one: dict[str, Any]) -> str:
    return f"resourceslice.resource.k8s.io/{one['metadata']['name']}"


def _picture(planned: PlannedNode, node: str) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from gpuctl.plan.node_gpus import gpu_table, published_gpus
    from gpuctl.plan.share_words import limits_lines

    counts = [len(one["spec"].get("devices", ())) for one in planned.slices]
    spec = planned.slices[0]["spec"]
    many = "slices" if len(counts) > 1 else "slice"
    counters = sum(len(one["spec"].get("sharedCounters", ())) for one in planned.slices)
    numbers = " + ".join(str(count) for count in counts if count or not counters)
    shared = f", counters of {counters} GPU{'s' * (counters != 1)}" if counters else ""
    where = f"driver {spec['driver']}, pool {spec['pool']['name']}"
    devices = "device" if numbers == "1" else "devices"
    lines = [f"{len(counts)} {many}, {numbers} {devices}{shared}; {where}"]
    lines += limits_lines(planned.slices)
    lines += _health_lines(planned.health)
    lines += [f"not offered: {what}: {reason}" for what, reason in sorted(planned.withheld.items())]
    return Group(gpu_table(node, published_gpus(planned.slices, ())), Text("\n".join(lines)))


def _health_lines(rules: HealthRules) -> Iterator[str]:
    """A line for the faults that evict pods, and one for XIDs that are not judged by the driver's table."""
    from driver.health.health_rules import EVICTING

    evicting = [word for word in EVICTING if word in rules.evict]
    if evicting:
        yield f"pods are evicted from a GPU that is tainted as {', '.join(evicting)}"
    if rules.xids:
        judged = ", ".join(f"{code} {word}" for code, word in sorted(rules.xids.items()))
        yield f"XIDs with a judgment of the node configuration: {judged}"
