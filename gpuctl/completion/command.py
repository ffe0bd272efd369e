"""The command ``gpuctl completion``: prints the script by which a shell completes gpuctl."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

VARIABLE = "_GPUCTL_COMPLETE"
"""While a shell completes, its script sets this variable, and click answers instead of running a command."""

_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command()
@click.argument("shell", type=click.Choice(tuple(_SHELLS)))
def completion(shell: str) -> None:
    """Print the script with which SHELL completes commands, flags, and names of objects in the cluster.

    \b
    bash   source <(gpuctl completion bash)
    zsh    source <(gpuctl completion zsh)
    fish   gpuctl completion fish | source

    Write that line into the file that the shell reads at its start: ~/.bashrc, ~/.zshrc or
    ~/.config/fish/config.fish. For `kubectl gpu` the completion of kubectl works, without this script.

    Exit codes: 0, 2 for a wrong command line.
    """
    # The script needs only the names of program and variable; the command could be any.
    click.echo(_SHELLS[shell](click.get_current_context().command, {}, "gpuctl", VARIABLE).source())
