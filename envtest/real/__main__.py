"""The command ``python -m envtest.real build``: builds the binaries of clusters."""

from __future__ import annotations

import click

from envtest.client.errors import ClusterError
from envtest.real.assets import find_assets
from envtest.real.build import DEFAULT_KUBERNETES, VERSIONS


@click.group()
def main() -> None:
    """A real Kubernetes cluster on this machine, for tests."""


@main.command()
@click.option(
    "--kubernetes",
    type=click.Choice(list(VERSIONS)),
    default=DEFAULT_KUBERNETES,
    show_default=True,
    envvar="KUBERNETES",
    help="Kubernetes minor version.",
)
def build(kubernetes: str) -> None:
    """Build the binaries, or find them, and print their folder."""
    try:
        click.echo(find_assets(kubernetes).folder)
    except ClusterError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
