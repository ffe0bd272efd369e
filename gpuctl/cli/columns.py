"""Lays rows out in plain columns, as kubectl does: capitals above, three spaces between, no lines."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.cli.printable import in_one_line

_GAP = "   "


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
