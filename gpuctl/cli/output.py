"""How commands print: for people on a terminal, in plain columns in a pipe, or JSON and YAML for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuctl.cli.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Command = TypeVar("Command", bound=Callable[..., Any])


def output_option(*more: str) -> Callable[[Command], Command]:
    """Add ``-o``, as ``output``: table, json, yaml, and what it knows besides, of wide, name and svg."""

    def add(command: Command) -> Command:
        return click.option(
            "-o",
            "--output",
            type=click.Choice(("table", *more, "json", "yaml")),
            default="table",
            help="What to print.",
            show_default=True,
        )(command)

    return add


def emit(
    output: str,
    data: Any,
    picture: Callable[[], str | RenderableType],
    names: Callable[[], Iterable[str]] = tuple,
    svg: Callable[[], str] = str,
) -> None:
    """Print ``data`` for scripts, the ``names`` of what is shown, or the ``picture`` of it for people.

    ``svg`` is the picture as a file of its own.
    """
    if output == "json":
        click.echo(json.dumps(data, indent=2))
    elif output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(data, sort_keys=False), nl=False)
    elif output == "svg":
        click.echo(svg(), nl=False)
    elif output == "name":
        for name in names():
            say(name)
    else:
        show(picture())


def show(picture: str | RenderableType) -> None:
    """Print a picture; where nobody sees it, in plain columns that tools can cut."""
    if isinstance(picture, str):
        say(picture)
    elif sys.stdout.isatty():
        from gpuctl.cli.printable import PrintablePicture

        terminal().print(PrintablePicture(picture))
    else:
        from gpuctl.cli.plain import plain_text

        say(plain_text(picture))


def say(text: str, *, err: bool = False) -> None:
    """Print a line, or lines, for people."""
    click.echo(printable(text), err=err)


def terminal() -> Console:
    """The terminal to draw on. Text is never read as markup: it may be somebody else's."""
    from rich.console import Console

    return Console(highlight=False, markup=False)
