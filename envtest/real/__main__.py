"""The command ``python -m envtest.real``: build the binaries, start a cluster, stop it."""

from __future__ import annotations

from pathlib import Path

import click

from envtest.client.errors import ClusterError, SupervisorGone
from envtest.client.layout import MAX_NODES
from envtest.real.assets import find_assets
from envtest.real.build import DEFAULT_KUBERNETES, VERSIONS
from envtest.real.cleaning import remove_files
from envtest.real.description import load
from envtest.real.processes import Processes
from envtest.real.startup import start_cluster

kubernetes_option = click.option(
    "--kubernetes",
    type=click.Choice(list(VERSIONS)),
    default=DEFAULT_KUBERNETES,
    show_default=True,
    envvar="KUBERNETES",
    help="Kubernetes minor version.",
)


@click.group()
def main() -> None:
    """A real Kubernetes cluster on this machine, for tests."""


@main.command()
@kubernetes_option
def build(kubernetes: str) -> None:
    """Build the binaries, or find them, and print their folder."""
    try:
        click.echo(find_assets(kubernetes).folder)
    except ClusterError as error:
        raise click.ClickException(str(error)) from error


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--nodes",
    type=click.IntRange(1, MAX_NODES),
    default=1,
    show_default=True,
    help="How many nodes.",
)
@kubernetes_option
def start(folder: Path, nodes: int, kubernetes: str) -> None:
    """Start a cluster with its state in FOLDER and print the administrator's kubeconfig."""
    try:
        cluster = start_cluster(nodes, kubernetes, folder, owned=False)
    except ClusterError as error:
        raise click.ClickException(str(error)) from error
    click.echo(cluster.admin)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
def stop(folder: Path) -> None:
    """Stop the cluster in FOLDER; only its logs stay there."""
    try:
        layout = load(folder).layout
        try:
            Processes(layout, None).shutdown()
        except SupervisorGone:
            # Its processes and mounts ended with it; the next cluster in its slot removes the cgroups.
            remove_files(layout, keep_logs=True)
    except ClusterError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
