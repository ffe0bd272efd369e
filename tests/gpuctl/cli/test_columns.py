"""Rows and pictures become plain columns where nobody looks at a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from gpuctl.cli.output import columns, plain_text


def test_columns_are_as_wide_as_their_longest_cell() -> None:
    told = columns(("name", "free"), [("node-a", "1"), ("b", "none\nat all")])

    assert told == "NAME     FREE\nnode-a   1\nb        none at all"


def test_rows_can_go_on_below_earlier_ones() -> None:
    assert columns(("name", "free"), [("b", "1")], no_heads=True) == "b      1"


def test_a_picture_loses_its_lines_and_styles_and_keeps_its_words() -> None:
    table = Table(title=Text("node-a", "bold"), caption="that is all", box=box.ROUNDED)
    table.add_column("GPU")
    table.add_column("Held by", justify="right")
    table.add_row("0", "train,\nnotebook")
    table.add_row(Text("1", style="red"), "[dim]free")

    told = plain_text(Group(Text("below", style="bold"), table, Text("above")))

    assert told.splitlines() == [
        "below",
        "node-a",
        "GPU   HELD BY",
        "0     train, notebook",
        "1     [dim]free",
        "that is all",
        "",
        "above",
    ]
