"""The program ``scenario-upgrade``: has the driver of a node replaced, as an upgrade of its release does."""

from __future__ import annotations

import socket
from pathlib import Path

import click

from driver.errors import NodeIncomplete
from tools.scenarios.commands.machines import node_of_fakes, run_program

REPLACED = "replaced"
"""What is answered when all went well; anything else says what did not."""


def upgrade_socket(folder: Path) -> Path:
    """Where the runner listens for a node whose files lie in this folder."""
    return folder / "upgrade.sock"


@click.command()
@click.argument("node")
def upgrade(node: str) -> None:
    """Replace the driver's processes on a NODE, the new plugin beside the old one until it serves.

    On a cluster `helm upgrade` does so, node by node.
    """
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(str(upgrade_socket(Path(node_of_fakes(node).folder))))
        except OSError as error:
            raise NodeIncomplete(
                f"nobody upgrades the driver of {node}: {error.strerror}",
                "ask for needs: [upgrades] in scenario.yaml",
            ) from error
        with asking.makefile() as answer:
            said = answer.read().strip()
    if said != REPLACED:
        raise NodeIncomplete(f"the driver of {node} is not replaced: {said or 'the runner has ended'}")
    click.echo(f"the driver of {node} is replaced")


if __name__ == "__main__":
    run_program(upgrade, "scenario-upgrade")
