"""The command ``gpuctl heal``: what is wrong with a GPU, and with ``--yes`` its reset."""

from __future__ import annotations

from pathlib import Path

import click

from gpuctl.cli.cluster_options import cluster_options, nodes
from gpuctl.cli.output import output_option


def _first_a_node(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The nodes for the first name; a node's GPUs are not read while somebody waits for a TAB."""
    return [] if ctx.params.get("names") else nodes(ctx, param, incomplete)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NODE GPU", shell_complete=_first_a_node)
@click.option(
    "--yes", is_flag=True, help="Do it: keep new pods away, evict the pods that use the GPU, and reset it."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, max=3600),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for pods and processes that use the GPU, with --yes.",
)
@click.option("--here", is_flag=True, help="Ask the plugin of the node that this runs on: `heal --here GPU`.")
@click.option(
    "--plugins-dir",
    metavar="PATH",
    envvar="GPU_DRA_PLUGINS_DIR",
    help="With --here: the kubelet's folder for plugins; default: that of the running plugin.",
)
@cluster_options
@output_option()
def heal(
    names: tuple[str, ...],
    yes: bool,
    timeout: float,
    here: bool,
    plugins_dir: str | None,
    kubeconfig: Path | None,
    context: str | None,
    output: str,
) -> None:
    """Say what is wrong with a GPU of NODE and what is in the way of a reset; with --yes, reset it.

    GPU is an index as `gpuctl describe node` lists it, a PCI address, a UUID or the name of a device. Without
    --yes nothing happens. With it all devices of the GPU are tainted, the pods that have one are evicted
    (PodDisruptionBudgets are kept), and when the GPU is not in use any more, the plugin on the node resets
    it. It ends when the GPU's taints are gone. A machine is never restarted.

    The plugin is asked in its pod, by kubectl exec. With --here it is asked at its socket: in its pod, or on
    the node as root.

    Exit codes: 0 when the GPU is healthy, or with --yes when it was healed; 3 when it is sick; 1 for a node
    or GPU that does not exist, or a cluster or plugin that cannot be asked; 2 for a wrong command line; 130
    when Ctrl-C ended it.
    """
    if len(names) != (1 if here else 2):
        raise click.UsageError("name the GPU alone with --here" if here else "name a node and a GPU of it")
    if here:
        from driver.process.log import configure
        from gpuctl.doctor.inside.places import local_command_lines, read_places
        from gpuctl.heal.plugin_socket import heal_steps
        from gpuctl.heal.run import heal_here

        configure("error")  # the steps are what is printed
        folder = read_places({"plugins_dir": plugins_dir}, local_command_lines()).data_dir
        heal_here(heal_steps(folder, names[0], reset=yes, wait_seconds=timeout), output)
        return
    from driver.devices.names import checked_node_name
    from gpuctl.cli.cluster import ClusterView, connect_client
    from gpuctl.heal import run
    from gpuctl.heal.node_reader import NodeReader

    client = connect_client(kubeconfig, context)
    node = checked_node_name(names[0])
    reader = NodeReader(ClusterView(client), node, kubeconfig, context)
    plan = reader.plan(names[1])
    if yes:
        run.heal(client, reader, plan, timeout, output)
    else:
        run.show(plan, output)
