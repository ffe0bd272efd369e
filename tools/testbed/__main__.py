"""The command ``python -m tools.testbed prepare``: builds everything that tests on real clusters need."""

from __future__ import annotations

import click

from envtest.client.errors import ClusterError
from envtest.real.assets import find_assets
from envtest.real.build import DEFAULT_KUBERNETES, VERSIONS, go_programs, modules
from tools.testbed.driver_image import driver_image
from tools.testbed.memory_hook import memory_hook


@click.group()
def main() -> None:
    """Build what tests on real clusters need besides the cluster."""


@main.command()
@click.argument("programs", nargs=-1, type=click.Choice(modules()))
@click.option(
    "--kubernetes",
    type=click.Choice(list(VERSIONS)),
    default=DEFAULT_KUBERNETES,
    show_default=True,
    envvar="KUBERNETES",
    help="Kubernetes minor version.",
)
def prepare(programs: tuple[str, ...], kubernetes: str) -> None:
    """Build everything that tests on a cluster need, so that nothing is built while they run.

    With PROGRAMS only these are built, besides Kubernetes and the memory hook, and no image of the driver.
    """
    try:
        click.echo(find_assets(kubernetes).folder)
        for module in programs or modules():
            click.echo(go_programs(module))
        click.echo(memory_hook())
        if not programs:
            click.echo(driver_image())
    except ClusterError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
