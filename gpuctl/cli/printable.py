"""Makes text safe for a terminal: what tenants and nodes write is shown, and does nothing.

A control character could clear the screen or hide what stands before it; a mark of writing from right to
left turns a sentence around.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

_LAID_OUT = "\n\t"


def printable(text: str) -> str:
    """The text with a question mark for every character that a terminal would not simply show."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in _LAID_OUT else "?" for one in text)


def in_one_line(text: str) -> str:
    """The same in one line: messages of others may hold anything."""
    return printable(" ".join(text.split()))


class PrintablePicture:
    """A picture of which the terminal shows every word; its colours stay."""

    def __init__(self, picture: RenderableType) -> None:
        """Nothing is drawn yet."""
        self._picture = picture

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> list[Segment]:
        """What is drawn (rich's protocol)."""
        from rich.segment import Segment

        drawn = console.render(self._picture, options)
        return [one if one.control else Segment(printable(one.text), one.style) for one in drawn]
