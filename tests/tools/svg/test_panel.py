"""A panel places values and moments, and names round moments."""

from __future__ import annotations

import pytest

from tests.tools.svg.pictures import read_picture, words_of
from tools.svg.drawing import Drawing
from tools.svg.panel import Panel


def panel(seconds: float) -> Panel:
    return Panel("pods", 50, 20, 200, 100, 8, seconds)


def test_values_and_moments_stay_within_the_box() -> None:
    assert [panel(10).x(at) for at in (0, 5, 12)] == [50, 150, 250]
    assert [panel(10).y(value) for value in (0, 2, 9)] == [120, 95, 20]


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (0, []),
        (90, ["0 s", "15 s", "30 s", "45 s", "60 s", "75 s", "90 s"]),
        (1200, ["0 min", "4 min", "8 min", "12 min", "16 min", "20 min"]),
        (7000, ["0 min", "20 min", "40 min", "60 min", "80 min", "100 min"]),
    ],
)
def test_the_time_has_at_most_seven_labels_in_the_largest_unit_that_passes_twice(
    seconds: float, labels: list[str]
) -> None:
    drawing = Drawing(300, "a panel", "nothing")

    panel(seconds).draw(drawing, moments=True)

    assert words_of(read_picture(drawing.text(150))) == ["pods", "0", "4", "8", *labels]


def test_a_panel_above_others_shows_no_time() -> None:
    drawing = Drawing(300, "a panel", "nothing")

    panel(90).draw(drawing, moments=False)

    assert words_of(read_picture(drawing.text(150))) == ["pods", "0", "4", "8"]
