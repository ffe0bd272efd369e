"""Records ``gpuctl demo`` as it runs, as an animated SVG of a terminal.

Lines appear when they were printed, with pauses for reading, and the terminal scrolls. The animation is CSS
alone. It ends with the last lines and stays there; whoever prefers reduced motion sees these at once.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

from rich.style import Style
from rich.text import Text

COMMAND = "gpuctl demo"
COLUMNS, ROWS = 84, 30
SECONDS = 20.0
"""How long the animation takes."""

_PICTURE_SECONDS = 4.0
"""A table or a drawing stays on the terminal for so long, as the recording counts, before more comes."""

_FIRST_SECONDS = 1.0
_CHARACTER, _LINE, _MARGIN, _TITLE = 8.4, 18, 14, 34
_STEP = re.compile(r"\s*\d+\.\d s ")
_NAME = "gpuctl demo on a terminal"


class DemoEnded(Exception):
    """The demo failed, so there is nothing to show."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line as the terminal got it, with its escape sequences, and when, in seconds since the start."""

    text: str
    at: float


def record(folder: Path) -> None:
    """Write the recording; raises DemoEnded."""
    (folder / "demo.svg").write_text(animated(recorded()))


def recorded() -> list[Line]:
    """Run the demo on a terminal of its own, and read what it prints; raises DemoEnded."""
    ours, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuctl", "demo"], stdin=its, stdout=its, stderr=its, env=environment
    )
    os.close(its)
    lines = list(_lines(ours, started))
    os.close(ours)
    if process.wait() != 0:
        raise DemoEnded("\n".join(one.text for one in lines))
    return lines


def _lines(terminal: int, started: float) -> Iterator[Line]:
    rest = b""
    while True:
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:  # EIO: the process has ended
            data = b""
        if not data:
            break
        *whole, rest = (rest + data).split(b"\n")
        for one in whole:
            yield Line(one.decode(errors="replace").rstrip("\r"), time.monotonic() - started)
    if rest.strip():
        yield Line(rest.decode(errors="replace"), time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class _Moment:
    """Lines that appear together, ``at`` seconds of the animation, as the lines from ``first`` on."""

    at: float
    first: int
    lines: tuple[Text, ...]


def animated(lines: Sequence[Line]) -> str:
    """The recording as an SVG that plays once, for SECONDS."""
    moments = _moments(lines)
    width, height = 2 * _MARGIN + COLUMNS * _CHARACTER, _TITLE + ROWS * _LINE + _MARGIN
    steps = [text.plain for moment in moments for text in moment.lines if _STEP.match(text.plain)]
    words = " ".join(" ".join(steps).split())
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{_NAME}">',
            f"<title>{_NAME}</title>",
            f"<desc>A terminal on which {COMMAND} runs. It prints these steps: {escape(words)}</desc>",
            "<style>",
            *_style(moments),
            "</style>",
            f'<rect class="ground" width="{width:g}" height="{height:g}" rx="8"/>',
            *(f'<circle class="light" cx="{18 + 18 * number}" cy="17" r="5.5"/>' for number in range(3)),
            f'<text class="name" x="{width / 2:g}" y="22" text-anchor="middle">{COMMAND}</text>',
            '<clipPath id="terminal">',
            f'<rect y="{_TITLE}" width="{width:g}" height="{ROWS * _LINE + 4}"/></clipPath>',
            '<g clip-path="url(#terminal)"><g class="roll">',
            *(line for number, moment in enumerate(moments) for line in _group(number, moment)),
            "</g></g>",
            "</svg>\n",
        ]
    )


def _moments(lines: Sequence[Line]) -> list[_Moment]:
    """The lines by when they appear, after the command itself."""
    found = [_Moment(0.0, 0, (Text.assemble(("$ ", "dim"), (COMMAND, "bold")),))]
    held, in_picture = 0.0, False
    together: list[tuple[float, Text]] = []
    for line in lines:
        text = Text.from_ansi(line.text)
        text.rstrip()
        is_step = bool(_STEP.match(text.plain))
        if is_step and in_picture:
            held += _PICTURE_SECONDS
        # A picture begins and ends with an empty line; the further lines of a step do not.
        in_picture = not is_step and (in_picture or not text.plain)
        together.append((line.at + held, text))
    scale = (SECONDS - _FIRST_SECONDS) / max(at for at, _ in together)
    for tenths, group in groupby(together, lambda one: round(10 * (_FIRST_SECONDS + one[0] * scale))):
        last = found[-1]
        texts = tuple(text for _, text in group)
        found.append(_Moment(tenths / 10, last.first + len(last.lines), texts))
    return found


def _group(number: int, moment: _Moment) -> Iterator[str]:
    """The lines of a moment as elements."""
    yield f'<g class="m m{number}">'
    for place, text in enumerate(moment.lines, moment.first):
        if text.plain.strip():
            y = _TITLE + 13 + place * _LINE
            # The width is given, so that drawings stay together in any font.
            length = len(text.plain) * _CHARACTER
            yield f'<text x="{_MARGIN}" y="{y}" textLength="{length:g}">{_spans(text)}</text>'
    yield "</g>"


def _spans(text: Text) -> str:
    """The text with its bold, faint and slanted parts."""
    parts, at = [], 0
    for span in sorted(text.spans, key=lambda one: one.start):
        style = Style.parse(str(span.style)) if not isinstance(span.style, Style) else span.style
        names = [name for name, on in (("b", style.bold), ("d", style.dim), ("i", style.italic)) if on]
        if names and span.start >= at:
            inside = escape(text.plain[span.start : span.end])
            parts += [
                escape(text.plain[at : span.start]),
                f'<tspan class="{" ".join(names)}">{inside}</tspan>',
            ]
            at = span.end
    return "".join([*parts, escape(text.plain[at:])])


def _style(moments: Sequence[_Moment]) -> Iterator[str]:
    yield 'text{font:14px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace}'
    yield "text{fill:#e6edf3;white-space:pre}"
    yield ".ground{fill:#0d1117;stroke:#3d444d}.light{fill:#3d444d}"
    yield ".name,.d{fill:#9198a1}.b{font-weight:700}.i{font-style:italic}"
    yield "@keyframes show{to{opacity:1}}"
    yield ".m{opacity:0;animation:show 1ms forwards}"
    yield from (f".m{number}{{animation-delay:{one.at:g}s}}" for number, one in enumerate(moments))
    yield f".roll{{animation:roll {SECONDS:g}s step-end forwards}}"
    yield "@keyframes roll{"
    yield from (f"{100 * one.at / SECONDS:.2f}%{{transform:translateY({_up(one):g}px)}}" for one in moments)
    yield "}"
    yield "@media (prefers-reduced-motion:reduce){"
    yield ".m{animation:none;opacity:1}"
    yield f".roll{{animation:none;transform:translateY({_up(moments[-1]):g}px)}}}}"


def _up(moment: _Moment) -> int:
    """How far the lines have moved once those of this moment are there, so that the last one is visible."""
    return -_LINE * max(0, moment.first + len(moment.lines) - ROWS)
