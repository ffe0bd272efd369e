"""How commands print: a table for people, JSON or YAML for scripts, by the same flag everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click
import yaml
from rich.console import Console, RenderableType

Command = TypeVar("Command", bound=Callable[..., Any])

FORMATS = ("table", "json", "yaml")


def output_option(command: Command) -> Command:
    """Add ``-o``, as ``output``."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        default="table",
        help="What to print.",
        show_default=True,
    )(command)


def emit(output: str, data: Any, picture: Callable[[], RenderableType]) -> None:
    """Print ``data`` for scripts, or the ``picture`` of it for people; a pipe gets wide tables whole."""
    if output == "json":
        click.echo(json.dumps(data, indent=2))
    elif output == "yaml":
        click.echo(yaml.safe_dump(data, sort_keys=False), nl=False)
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console = Console(highlight=False, width=200)
        console.print(picture())
