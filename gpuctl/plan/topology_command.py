"""The command ``gpuctl topology``: how the GPUs of a node reach each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from driver.errors import ConfigError
from gpuctl.cli.cluster_options import cluster_options, nodes
from gpuctl.cli.output import document, emit, output_option
from gpuctl.plan.machine_options import machine_option

if TYPE_CHECKING:
    from gpuctl.cli.cluster import ClusterView, Object


@click.command()
@click.argument("node", required=False, shell_complete=nodes)
@machine_option(what="Instead of a node: a machine that `gpuctl machines` lists, or a machine file.")
@cluster_options
@output_option()
def topology(
    node: str | None, machine: str | None, kubeconfig: Path | None, context: str | None, output: str
) -> None:
    """Draw how the GPUs of NODE are connected, in the terms of nvidia-smi topo -m.

    It reads the node's slices. A GPU that is only offered in partitions is shown without NVLinks, since
    partitions cannot use them.

    Exit codes: 0, 1 for a node that publishes no GPU or a cluster that cannot be reached, 2 for a wrong
    command line.
    """
    from driver.devices.names import DRIVER_NAME, parse_gpu_device_name
    from gpuctl.cli.cluster import ClusterView
    from gpuctl.plan.node_gpus import published_gpus
    from gpuctl.plan.planned import plan_node
    from gpuctl.plan.topology import matrix_of, matrix_table

    if machine is not None and node is None:
        slices, name = list(plan_node(machine, "node", None).slices), machine
    elif node is not None and machine is None:
        slices, name = _slices_of(ClusterView.connect(kubeconfig, context), node), node
    else:
        raise click.UsageError("name a node, or a machine with --machine")
    gpus = [gpu for gpu in published_gpus(slices, ()) if parse_gpu_device_name(gpu.device)]
    if not gpus:
        raise ConfigError(
            f"{name} publishes no GPU of the driver {DRIVER_NAME}",
            "`gpuctl status -o name` lists the nodes that do",
        )
    matrix = matrix_of(gpus)
    emit(
        output,
        document("NodeTopology", {"node": name, **matrix.as_data()}),
        lambda: matrix_table(name, matrix),
    )


def _slices_of(view: ClusterView, node: str) -> list[Object]:
    from driver.devices.names import DRIVER_NAME
    from gpuctl.cli.cluster import DRA

    mine = view.listed(f"{DRA}/resourceslices", fieldSelector=f"spec.nodeName={node}")
    return [one for one in mine if one["spec"]["driver"] == DRIVER_NAME]
