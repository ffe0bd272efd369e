"""Prints the demo's story: its steps with the time since the beginning, and its pictures."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


class Narrator:
    """Prints the steps with the time since the beginning, and the pictures."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """The time since the beginning."""
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        """One step of the story, with rich's markup."""
        line = Table.grid(padding=(0, 2))
        line.add_row(f"[dim]{self.seconds:5.1f} s[/dim]", text)
        self._console.print(line)

    def show(self, picture: RenderableType) -> None:
        """A picture between empty lines."""
        self._console.print()
        self._console.print(picture)
        self._console.print()
