"""How commands print: pictures and plain columns for people, JSON and YAML documents for scripts.

Text of tenants and nodes is made safe for a terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment


Command = TypeVar("Command", bound=Callable[..., Any])

_GAP = "   "

API_VERSION = "gpuctl.nvidia.com/v1"

AMISS_EXIT_CODE = 3
"""The command did its work, and something is amiss: a pod waits, a GPU is sick, a check failed.

1 means that the command failed, 2 that its command line is wrong, 130 that Ctrl-C ended it.
"""
INTERRUPTED_EXIT_CODE = 130
"""What a shell reports for a command that Ctrl-C ended: 128 and the number of SIGINT."""

_WHITESPACE = "\n\t"
"""Not printable for Python, but harmless on a terminal."""


def exit_amiss() -> NoReturn:
    """End the command that runs: it did its work, and something is amiss."""
    click.get_current_context().exit(AMISS_EXIT_CODE)


def own_version() -> str:
    """The version of this package; ``unknown`` if it was copied without its metadata."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("gpu-dra")
    except PackageNotFoundError:
        return "unknown"


def output_option(*more: str) -> Callable[[Command], Command]:
    """Add ``-o``, as ``output``: table, json, yaml, and ``more`` of wide, name and karpenter."""

    def add(command: Command) -> Command:
        return click.option(
            "-o",
            "--output",
            type=click.Choice(("table", *more, "json", "yaml")),
            default="table",
            help="The output format.",
            show_default=True,
        )(command)

    return add


def emit(
    output: str,
    data: Any,
    picture: Callable[[], str | RenderableType],
    names: Callable[[], Iterable[str]] = tuple,
) -> None:
    """Print ``data`` for scripts, the ``names`` of what is shown, or the ``picture`` of it for people."""
    if output == "json":
        click.echo(json.dumps(data, indent=2))
    elif output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(data, sort_keys=False), nl=False)
    elif output == "name":
        for name in names():
            say(name)
    else:
        show(picture())


def show(picture: str | RenderableType) -> None:
    """Print a picture; in a pipe or a file as plain columns, which tools can cut."""
    if isinstance(picture, str):
        say(picture)
    elif sys.stdout.isatty():
        terminal().print(PrintablePicture(picture))
    else:
        say(plain_text(picture))


def say(text: str, *, err: bool = False) -> None:
    """Print a line, or lines, for people."""
    click.echo(printable(text), err=err)


def terminal() -> Console:
    """The terminal to draw on."""
    from rich.console import Console

    # rich reads [red] in a text as a colour, unless told not to: names of objects are text of others.
    return Console(highlight=False, markup=False)


def columns(heads: Sequence[str], rows: Sequence[Sequence[str]], *, no_heads: bool = False) -> str:
    """The rows below their heads, without spaces at the ends of lines.

    ``no_heads`` leaves the heads out, but the columns are as wide as with them.
    """
    shown = [tuple(head.upper() for head in heads), *(tuple(map(in_one_line, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = [
        _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]
    return "\n".join(lines[no_heads:])


def document(kind: str, content: Any) -> dict[str, Any]:
    """A document of a kind for scripts: apiVersion, kind, and the fields of a dataclass or a mapping.

    Each kind has a JSON Schema in ``gpuctl/schemas``, made by ``tools.docs.lookup``. Within a version, fields
    are only added.
    """
    return {"apiVersion": API_VERSION, "kind": kind, **as_data(content)}


def as_data(value: Any) -> Any:
    """The value as plain data: fields of dataclasses in camelCase, without those that are None."""
    if is_dataclass(value) and not isinstance(value, type):
        held = {one.name: getattr(value, one.name) for one in fields(value)}
        return {camel_case(name): as_data(one) for name, one in held.items() if one is not None}
    if isinstance(value, Mapping):
        # These keys are data, names of tiers for example, so they stay as they are.
        return {str(key): as_data(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_data(one) for one in value]
    return value


def camel_case(name: str) -> str:
    """``claims_left`` as ``claimsLeft``."""
    first, *others = name.split("_")
    return first + "".join(one.capitalize() for one in others)


def plain_text(picture: RenderableType) -> str:
    """The text of a picture: tables become columns without lines, and each cell becomes one line."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def words(part: RenderableType) -> str:
        return part.plain if isinstance(part, Text) else str(part)

    if isinstance(picture, Group):
        # A table has an empty line below it.
        return "\n".join(plain_text(one) + "\n" * isinstance(one, Table) for one in picture.renderables)
    if isinstance(picture, Table):
        heads = [words(column.header) for column in picture.columns]
        rows = list(zip(*([words(cell) for cell in column.cells] for column in picture.columns), strict=True))
        title, caption = (words(part) if part else "" for part in (picture.title, picture.caption))
        return "\n".join(filter(None, (title, columns(heads, rows), caption)))
    return words(picture)


def printable(text: str) -> str:
    """The text with a question mark in place of every character that a terminal would act on.

    Tenants and nodes write some of what is shown.
    """
    # An escape sequence could clear the screen or hide text before it. A mark of right-to-left writing turns
    # a sentence around: str.isprintable is false for such marks as well, which Unicode counts as "other".
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in _WHITESPACE else "?" for one in text)


def some_of(names: Sequence[str], most: int | None) -> str:
    """The first ``most`` names and how many more there are; all of them with None."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if most is not None and len(names) > most else shown


def in_one_line(text: str) -> str:
    """The printable text in one line: a message from the cluster may hold anything."""
    return printable(" ".join(text.split()))


class PrintablePicture:
    """A picture whose text is made safe for the terminal; its colours stay."""

    def __init__(self, picture: RenderableType) -> None:
        self._picture = picture

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> list[Segment]:
        """What is drawn (rich's protocol)."""
        from rich.segment import Segment

        # Control segments are rich's own codes, colours and moves of the cursor; text is in the others.
        drawn = console.render(self._picture, options)
        return [one if one.control else Segment(printable(one.text), one.style) for one in drawn]
