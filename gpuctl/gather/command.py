"""The command ``gpuctl gather``: a bug report as a tar, with secrets left out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from gpuctl.cli.cluster_options import cluster_options, nodes
from gpuctl.cli.output import say
from gpuctl.doctor.inside.places import place_options

STDOUT = Path("-")


@click.command()
@click.argument("node", required=False, shell_complete=nodes)
@click.option(
    "--local",
    is_flag=True,
    help="Report on this node, without a cluster; takes the paths that `gpuctl verify` takes.",
)
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file to write, `-` for stdout; default: gpu-dra-report-TIME.tar.gz in this folder.",
)
@place_options
@cluster_options
def gather(
    node: str | None,
    local: bool,
    to: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    **places: Any,
) -> None:
    """Write a report about the driver into a tar: objects, logs, the doctor's findings; NODE adds its files.

    Secrets, tokens, keys, annotations, environments of processes and claims of other drivers are left out;
    values that may be secret are masked. Its README.txt says what it contains. An existing file is not
    overwritten. The files of NODE are read by kubectl exec in the pod of the plugin there.

    Exit codes: 0, 1 when the cluster cannot be reached or the file cannot be written, 2 for a wrong command
    line.
    """
    from gpuctl.gather.archive import write_archive, write_new
    from gpuctl.gather.report import cluster_report, local_report

    now = time.time()
    if local:
        from driver.process.log import configure
        from gpuctl.doctor.inside.places import local_command_lines, read_places

        if node is not None:
            raise click.UsageError("--local reports on the node that this runs on: name no node with it")
        configure("error")  # reading the node uses the driver's own code, which logs
        lines = local_command_lines()
        members = local_report(read_places(places, lines), lines)
    else:
        from gpuctl.cli.cluster import connect_client

        members = cluster_report(connect_client(kubeconfig, context), node, kubeconfig, context)
    data = write_archive(members, now)
    if to == STDOUT:
        click.echo(data, nl=False)
        return
    file = to or Path(f"gpu-dra-report-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}.tar.gz")
    write_new(file, data)
    say(f"{file} ({len(data) / 1024:.0f} KiB); check what it contains before you share it")
