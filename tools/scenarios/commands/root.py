"""The program ``scenario-root``: says where the files of a node of fakes are, such as its sysfs."""

from __future__ import annotations

import click

from tools.scenarios.commands.machines import node_of_fakes, run_program


@click.command()
@click.argument("node")
def root(node: str) -> None:
    """Print the folder of a NODE of fakes, whose ``sys`` is its sysfs; on hardware that is ``/``."""
    click.echo(node_of_fakes(node).folder)


if __name__ == "__main__":
    run_program(root, "scenario-root")
