"""The command ``gpuctl doctor``: what is wrong with a cluster, or a node, and what to do about it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from gpuctl.cli.cluster_options import cluster_options, nodes
from gpuctl.cli.output import document, emit, exit_amiss, output_option
from gpuctl.doctor.inside.places import place_options


@click.command()
@click.argument("node", required=False, shell_complete=nodes)
@click.option(
    "--local",
    is_flag=True,
    help="Check this node, without a cluster; takes the paths that `gpuctl verify` takes.",
)
@click.option(
    "--probe",
    is_flag=True,
    help=(
        "Also try each class of the driver: make a pod with a claim for it in the driver's namespace, read "
        "whether it got what the class promises, and delete both. This takes free GPUs for some seconds."
    ),
)
@place_options
@cluster_options
@output_option("wide")
def doctor(
    node: str | None,
    local: bool,
    probe: bool,
    kubeconfig: Path | None,
    context: str | None,
    output: str,
    **places: Any,
) -> None:
    """Say what is wrong with the cluster, or with NODE, and what to do; -o wide lists all checks.

    It reads objects, asks for rights, and tries in dry runs what the API server would store; nothing is
    changed, except with --probe. With NODE it also checks the node, by kubectl exec in the pod of the plugin
    there. With --local it checks the node that it runs on: in a pod of the driver it finds the flags of the
    running plugin.

    A check that cannot be made is skipped and says why; it is not ok.

    Exit codes: 0 when no check failed, 3 when one did, 1 when the cluster cannot be reached, 2 for a wrong
    command line.
    """
    from gpuctl.doctor.report import (
        DoctorReport,
        has_failed,
        look_from_outside,
        look_locally,
        picture,
        problems,
    )

    if local:
        from driver.process.log import configure
        from gpuctl.doctor.inside.places import local_command_lines, read_places

        if node is not None or probe:
            raise click.UsageError("--local checks the node that this runs on: name no node, and no --probe")
        configure("error")  # what is looked at logs as it does in the driver's processes
        results = look_locally(read_places(places, local_command_lines()), "node")
    else:
        from gpuctl.cli.cluster import connect_client

        client = connect_client(kubeconfig, context)
        results = look_from_outside(client, node, kubeconfig, context, probe=probe)
    shown = partial(picture, results, wide=True) if output == "wide" else partial(problems, results)
    emit(output, document("DoctorReport", DoctorReport(results)), shown)
    if has_failed(results):
        exit_amiss()
