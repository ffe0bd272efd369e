"""The command ``gpuctl plan``: what a node with some machine publishes, and what would fit on it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from driver.errors import ConfigError
from gpuctl.cli.cluster_options import cluster_options, nodes
from gpuctl.cli.output import document, emit, exit_amiss, output_option, say
from gpuctl.plan.machine_options import check_exists, complete_machines, config_options, machine_option

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gpuctl.plan.planned import Object, PlannedNode

_TAKES = {
    "": {"machine", "config", "node_labels", "node_name"},
    "--topology": {"machine", "kubeconfig", "context"},
    "--partitions": {"machine", "config", "node_labels", "layout"},
    "--machines": set[str](),
}
"""The options for each of the flags, and without one."""


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    if ctx.params.get("topology"):
        return [CompletionItem(name) for name in nodes(ctx, param, incomplete)]
    return complete_machines(ctx, param, incomplete) if ctx.params.get("machines") else []


@click.command()
@click.argument("names", nargs=-1, metavar="[NODE|MACHINE]...", shell_complete=_complete)
@machine_option()
@config_options("The node configuration; default: every GPU is offered as a whole.")
@click.option("--node-name", default="node", show_default=True, help="The name of the planned node.")
@click.option("--topology", is_flag=True, help="How the GPUs are connected, of --machine or of NODE.")
@click.option("--partitions", is_flag=True, help="Which MIG partitions fit on the GPUs, or are offered.")
@click.option(
    "--layout",
    help="With --partitions: whether this layout fits: all-balanced, all-1g.10gb, or profiles: 1g,1g,2g,3g.",
)
@click.option("--machines", is_flag=True, help="The machines that there are, or those named by MACHINE.")
@cluster_options
@output_option("name", "karpenter")
def plan(
    names: tuple[str, ...],
    machine: str | None,
    config: Path | None,
    node_labels: dict[str, str] | None,
    node_name: str,
    layout: str | None,
    kubeconfig: Path | None,
    context: str | None,
    output: str,
    *,
    topology: bool,
    partitions: bool,
    machines: bool,
) -> None:
    """Show exactly what a node would publish. Needs no cluster and no GPU.

    With -o json or yaml it prints a List of the ResourceSlices as they would be stored, and with -o karpenter
    the DynamicResources of an instance type: what autoscalers need to simulate a node
    (docs/autoscalers-and-queues.md). Three flags ask for something else:

    --topology draws how the GPUs of a machine, or of NODE in the cluster, are connected, in the terms of
    nvidia-smi topo -m. A GPU that is only offered in partitions is shown without NVLinks, since partitions
    cannot use them.

    --partitions draws the profiles and all named layouts of MIG partitions. Each box covers the memory slices
    of a partition. With --layout it says whether this one fits, or why not and which nearest one does; with
    --config, how a node configuration offers the GPUs.

    --machines lists what --machine takes here and in other commands. MACHINE may be a file of your own, which
    is checked (docs/testing.md has its fields).

    Exit codes: 0, 3 when the layout does not fit on a GPU, 1 for a file or a node that cannot be used, 2 for
    a machine that does not exist or another wrong command line.
    """
    flags = {"--topology": topology, "--partitions": partitions, "--machines": machines}
    _check_flags([name for name, is_given in flags.items() if is_given], output)
    if machines:
        _machines(names, output)
    elif topology:
        _topology(machine, names, kubeconfig, context, output)
    elif machine is None or names:
        raise click.UsageError(
            "name a machine with --machine (`gpuctl plan --machines` lists them), or a node with --topology"
        )
    elif partitions:
        _partitions(machine, config, node_labels, layout, output)
    else:
        _slices(machine, config, node_labels, node_name, output)


def _check_flags(flags: list[str], output: str) -> None:
    """Raise UsageError for what makes no sense together."""
    if len(flags) > 1:
        raise click.UsageError(f"give only one of {' and '.join(flags)}")
    flag = "".join(flags)
    ctx = click.get_current_context()
    for param in ctx.command.params:
        name = str(param.name)
        is_given = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE and ctx.params[name]
        fitting = [other for other, takes in _TAKES.items() if name in takes]
        if is_given and fitting and flag not in fitting:
            places = " and ".join(f"`gpuctl plan {other}`" if other else "plan alone" for other in fitting)
            raise click.UsageError(f"{param.opts[0]} is for {places}")
    if output == "name" and flag in ("--topology", "--partitions"):
        raise click.UsageError(f"-o name has nothing to name with {flag}")
    if output == "karpenter" and flag:
        raise click.UsageError("-o karpenter is for plan alone")


def _machines(names: tuple[str, ...], output: str) -> None:
    from gpuctl.plan.machines import machines, machines_table

    for name in names:
        check_exists(name)
    listed = machines(names)
    emit(
        output,
        document("MachineList", listed),
        lambda: machines_table(listed),
        lambda: (machine.name for machine in listed.items),
    )


def _topology(
    machine: str | None, names: tuple[str, ...], kubeconfig: Path | None, context: str | None, output: str
) -> None:
    from driver.devices.names import DRIVER_NAME, parse_gpu_device_name
    from gpuctl.cli.cluster import DRA, ClusterView
    from gpuctl.fleet.cluster import views_of
    from gpuctl.plan.planned import plan_node
    from gpuctl.plan.topology import topology_of, topology_text

    if len(names) + (machine is not None) != 1:
        raise click.UsageError("name one node, or a machine with --machine")
    node = machine or names[0]
    if machine:
        slices: Iterable[Object] = plan_node(machine, "node", None).slices
    else:
        cluster = ClusterView.connect(kubeconfig, context)
        slices = cluster.listed(f"{DRA}/resourceslices", fieldSelector=f"spec.nodeName={node}")
    # A device of a kind that is not known here may be no GPU, and then has no place.
    published = [gpu for view in views_of(slices, ()) for gpu in view.gpus]
    gpus = [gpu for gpu in published if parse_gpu_device_name(gpu.device)]
    if not gpus:
        raise ConfigError(
            f"{node} publishes no GPU of the driver {DRIVER_NAME}", "`gpuctl status` lists the nodes that do"
        )
    found = topology_of(node, gpus)
    emit(output, document("NodeTopology", found), lambda: topology_text(found))


def _partitions(
    machine: str, config: Path | None, labels: dict[str, str] | None, layout: str | None, output: str
) -> None:
    from driver.policy.config import load_config
    from gpuctl.plan.partition_bars import partitions_text
    from gpuctl.plan.partitions import mig_plan, read_layout
    from gpuctl.plan.planned import plan_node

    found = mig_plan(
        machine,
        plan_node(machine, "node", None).inventory,
        None if layout is None else read_layout(layout),
        load_config(config, labels) if config else None,
    )
    emit(output, document("MigPlan", found), lambda: partitions_text(found, layout))
    if any(kind.layout is not None and not kind.layout.fits for kind in found.gpu_kinds):
        exit_amiss()


def _slices(machine: str, config: Path | None, labels: dict[str, str] | None, node: str, output: str) -> None:
    from gpuctl.plan.planned import plan_node

    planned = plan_node(machine, node, config, labels)
    if output == "karpenter":
        from gpuctl.plan.karpenter import karpenter_lines

        for line in karpenter_lines(planned.slices):
            say(line)
        return
    emit(
        output,
        planned.as_list(),
        lambda: _picture(planned, node),
        lambda: (f"resourceslice.resource.k8s.io/{one['metadata']['name']}" for one in planned.slices),
    )


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
    lines += [f"not offered: {what}: {reason}" for what, reason in sorted(planned.withheld.items())]
    return Group(gpu_table(node, published_gpus(planned.slices, ())), Text("\n".join(lines)))
