"""Writes SVG: boxes, lines and words, with a title and a description for screen readers.

All colours are in one style sheet, which has a second set for dark mode. The same calls give the same text.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

FONT_SIZE = 13
LINE = 18
_CHARACTER = 7.3
_SMALL_CHARACTER = 6.2
"""How wide a character is at most, on average over a word, in the font size above and in class ``small``."""

_BOLD = 1.13
"""How many times as wide a character is in classes ``head`` and ``alarm``."""

_LIGHT = {
    "page": "fill:#ffffff",
    "card": "fill:#f6f8fa;stroke:#d0d7de",
    "free": "fill:#eaeef2;stroke:#afb8c1",
    "excluded": "fill:none;stroke:#afb8c1;stroke-dasharray:3 3",
    "words": "fill:#1f2328",
    "faint": "fill:#59636e",
    "alarm": "fill:#b42318;font-weight:600",
    "edge": "fill:none;stroke:#8c959f",
    "nvlink": "fill:none;stroke:#1a7f37;stroke-opacity:.75",
    "sick": "fill:none;stroke:#b42318;stroke-width:2",
    "whole": "fill:#2f6fdb;stroke:#1d4fa8",
    "partition": "fill:#8250df;stroke:#5f32b5",
    "shared": "fill:#127a87;stroke:#0b5963",
    "machine": "fill:#9a5b00;stroke:#6e4100",
    "number": "fill:#59636e;stroke:#59636e",
    "near": "fill:#d2f0da;stroke:#afb8c1",
    "middle": "fill:#fdf1c4;stroke:#afb8c1",
    "far": "fill:#eaeef2;stroke:#afb8c1",
}
_DARK = {
    "page": "fill:#0d1117",
    "card": "fill:#161b22;stroke:#3d444d",
    "free": "fill:#21262d;stroke:#656c76",
    "excluded": "fill:none;stroke:#656c76;stroke-dasharray:3 3",
    "words": "fill:#e6edf3",
    "faint": "fill:#9198a1",
    "alarm": "fill:#ff8a80;font-weight:600",
    "edge": "fill:none;stroke:#9198a1",
    "nvlink": "fill:none;stroke:#56d364;stroke-opacity:.8",
    "sick": "fill:none;stroke:#ff8a80;stroke-width:2",
    "near": "fill:#12361f;stroke:#656c76",
    "middle": "fill:#3a3210;stroke:#656c76",
    "far": "fill:#21262d;stroke:#656c76",
}
"""Only what differs in dark mode. The boxes of claims do not: the words in them are white in either mode."""


class Drawing:
    """A picture in the making, all measures in pixels from its upper left corner."""

    def __init__(self, width: float, title: str, description: str) -> None:
        self.width = width
        self._title, self._description = (" ".join(_allowed(one).split()) for one in (title, description))
        self._parts: list[str] = []

    def box(
        self, x: float, y: float, width: float, height: float, kind: str, *, hint: str = "", round_: int = 4
    ) -> None:
        """A rectangle; ``hint`` is shown when a pointer rests on it."""
        place = f'x="{x:g}" y="{y:g}" width="{max(width, 0):g}" height="{height:g}" rx="{round_}"'
        inside = f"<title>{_words(hint)}</title>" if hint else ""
        self._parts.append(f'<rect class="{kind}" {place}>{inside}</rect>')

    def words(self, x: float, y: float, text: str, kind: str = "words", *, anchor: str = "start") -> None:
        """A line of text on the base line ``y``."""
        self._parts.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{_words(text)}</text>'
        )

    def curve(self, steps: str, kind: str, *, width: float = 1, hint: str = "") -> None:
        """A path by the commands of SVG."""
        inside = f"<title>{_words(hint)}</title>" if hint else ""
        self._parts.append(f'<path class="{kind}" d="{steps}" stroke-width="{width:g}">{inside}</path>')

    def text(self, height: float) -> str:
        """The picture as a file; it ends with a newline."""
        return "\n".join(self._lines(height)) + "\n"

    def _lines(self, height: float) -> Iterator[str]:
        size = f'width="{self.width:g}" height="{height:g}" viewBox="0 0 {self.width:g} {height:g}"'
        # Screen readers take role="img" with its label as one picture, and do not read the texts one by one.
        label = quoteattr(self._title)
        yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label={label}>'
        yield f"<title>{_words(self._title)}</title>"
        yield f"<desc>{_words(self._description)}</desc>"
        yield "<style>"
        yield f"text{{font:{FONT_SIZE}px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif}}"
        yield ".on{fill:#ffffff}.head{font-weight:600}.small{font-size:11px}"
        yield from (f".{name}{{{style}}}" for name, style in _LIGHT.items())
        yield "@media (prefers-color-scheme:dark){"
        yield from (f".{name}{{{style}}}" for name, style in _DARK.items())
        yield "}"
        yield "</style>"
        yield f'<rect class="page" width="{self.width:g}" height="{height:g}"/>'
        yield from self._parts
        yield "</svg>"


def fitted(text: str, width: float, *, small: bool = False, bold: bool = False) -> str:
    """As much of a text as fits, with an ellipsis if it is cut; nothing if there is hardly room."""
    # The width of a text depends on the reader's font; the average is enough for names.
    character = (_SMALL_CHARACTER if small else _CHARACTER) * (_BOLD if bold else 1.0)
    room = int(width / character)
    if len(text) <= room:
        return text
    return f"{text[: room - 1]}…" if room > 2 else ""


def _words(text: str) -> str:
    return escape(_allowed(text))


def _allowed(text: str) -> str:
    """The text without the characters that XML 1.0 forbids, and without those above U+FFFF."""
    # One control character, surrogate, U+FFFE or U+FFFF makes the whole file unreadable, even as a reference.
    return "".join(
        one
        for one in text
        if one in "\t\n" or (ord(one) >= 0x20 and not 0xD800 <= ord(one) < 0xE000 and ord(one) < 0xFFFE)
    )
