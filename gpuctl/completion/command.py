"""The command ``gpuctl completion``: prints the script by which a shell completes gpuctl."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_GPUCTL_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the script by which SHELL completes commands, flags, and names that are in the cluster.

    \b
    bash   source <(gpuctl completion bash)
    zsh    source <(gpuctl completion zsh)
    fish   gpuctl completion fish | source

    Write that line into the file that the shell reads at its start: ~/.bashrc, ~/.zshrc or
    ~/.config/fish/config.fish. As `kubectl gpu` it is completed by kubectl, which needs no script for it.

    Exit codes: 0, 2 for a wrong command line.
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"{shell} is no shell that can be completed")
    click.echo(found(click.get_current_context().command, {}, "gpuctl", VARIABLE).source())
