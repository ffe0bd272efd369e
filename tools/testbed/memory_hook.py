"""Builds the driver's hook, gpu-memory-hook, from the sources of this checkout, in the user's cache.

``python -m tools.testbed.memory_hook`` prints the path of the program, for the plugin's ``--memory-hook``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from envtest.client.errors import ClusterError
from envtest.client.shipped import PACKAGE_ROOT
from envtest.real.build import go_programs

PROGRAM = "gpu-memory-hook"


def memory_hook(environment: Mapping[str, str] = os.environ, source: Path = PACKAGE_ROOT) -> Path:
    """The program, built first if the cache has none for these sources; needs Go, but no Go modules.

    Raises:
        MissingPrerequisite: it is not built yet, and there is no Go.
        BuildFailed: Go failed.
    """
    return go_programs("memory-hook", environment, source / "deploy" / "image") / PROGRAM


@click.command()
def main() -> None:
    """Build gpu-memory-hook, or find it, and print its path."""
    try:
        click.echo(memory_hook())
    except ClusterError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
