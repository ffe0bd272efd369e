"""The program ``scenario-on``: runs a command as an administrator who is logged in to a node of fakes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from tools.scenarios.commands.machines import node_of_fakes, run_program


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("node")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def on_node(node: str, command: tuple[str, ...]) -> None:
    """Run a COMMAND on a NODE of fakes: nvidia-smi is the node's, and gpuctl finds its plugin.

    On hardware that is ssh, or the plugin's pod.
    """
    there = node_of_fakes(node)
    programs = Path(there.folder) / "driver" / "usr" / "bin"
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}",
        "GPU_DRA_PLUGINS_DIR": there.plugins_dir,
    }
    try:
        done = subprocess.run(command, env=environment, check=False)
    except FileNotFoundError as error:
        raise click.UsageError(f"there is no program {command[0]} on {node}") from error
    sys.exit(done.returncode)


if __name__ == "__main__":
    run_program(on_node, "scenario-on")
