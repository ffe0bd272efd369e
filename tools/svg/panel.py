"""A panel for values over time: a box with an axis for the values, and one for the time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tools.svg.drawing import Drawing

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_MOMENTS = 6


@dataclass(frozen=True, slots=True)
class Panel:
    """A box, measured in pixels, for values from 0 to ``most`` within ``seconds``."""

    title: str
    left: float
    top: float
    width: float
    height: float
    most: float
    seconds: float
    unit: str = ""

    @property
    def bottom(self) -> float:
        """Where the value 0 is."""
        return self.top + self.height

    def x(self, seconds: float) -> float:
        """Where a moment is; what is later than the last one is there too."""
        return self.left + self.width * (min(seconds, self.seconds) / self.seconds if self.seconds else 0)

    def y(self, value: float) -> float:
        """Where a value is; a larger one than the largest is at the upper edge."""
        return self.bottom - self.height * min(1.0, value / self.most)

    def draw(self, drawing: Drawing, *, moments: bool) -> None:
        """Draw the title, the box and the axes; that of the time only if ``moments``."""
        drawing.words(self.left, self.top - 10, self.title, "words head")
        drawing.box(self.left, self.top, self.width, self.height, "card", round_=0)
        for value in (0.0, self.most / 2, self.most):
            y, number = self.y(value), f"{value:,.4g}{self.unit}"
            drawing.words(self.left - 8, y + 4, number, "faint small", anchor="end")
            drawing.curve(f"M{self.left:g} {y:g}h{self.width:g}", "excluded")
        for seconds, label in self._moments() if moments else ():
            drawing.words(self.x(seconds), self.bottom + 16, label, "faint small", anchor="middle")

    def _moments(self) -> Iterator[tuple[float, str]]:
        """Round moments and their labels; none if no time passes."""
        if not self.seconds:
            return
        unit, name = next((one for one in _UNITS if self.seconds >= 2 * one[0]), _UNITS[-1])
        each = max(1, math.ceil(self.seconds / unit / _MOMENTS))
        for at in range(0, int(self.seconds / unit) + 1, each):
            yield at * unit, f"{at:g} {name}"
