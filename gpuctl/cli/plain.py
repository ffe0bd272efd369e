"""Turns a picture for the terminal into plain text for a pipe: tables become columns without lines."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpuctl.cli.columns import columns


def plain_text(picture: RenderableType) -> str:
    """The same words as in the picture; a cell of several lines becomes one line."""
    if isinstance(picture, Group):
        return "\n".join(_in_group(part) for part in picture.renderables)
    if isinstance(picture, Table):
        heads = [_words(column.header) for column in picture.columns]
        rows = list(
            zip(*([_words(cell) for cell in column.cells] for column in picture.columns), strict=True)
        )
        around = (_words(part) if part else "" for part in (picture.title, picture.caption))
        title, caption = around
        return "\n".join(filter(None, (title, columns(heads, rows), caption)))
    return _words(picture)


def _in_group(part: RenderableType) -> str:
    """A part with an empty line below it where that is a table."""
    return f"{plain_text(part)}\n" if isinstance(part, Table) else plain_text(part)


def _words(part: RenderableType) -> str:
    """The text without styles."""
    return part.plain if isinstance(part, Text) else str(part)
