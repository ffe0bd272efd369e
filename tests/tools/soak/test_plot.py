"""The plot is a valid picture with a line for each process, and a mark for each disturbance in each panel."""

from __future__ import annotations

from tests.tools.svg.pictures import SPACE, read_picture, words_of
from tools.soak.judgement import Mark, Process, Sample
from tools.soak.plot import plot

SAMPLES = [
    Sample(
        at * 2.0,
        {"kubeletplugin": Process(1, 60 + at % 3, 20, 40), "controller": Process(2, 55, 12, 30)},
        at % 9,
        at * 5,
    )
    for at in range(1500)
]
MARKS = [Mark("kubelet-term", None, 100, 103), Mark("lost", "0000:1b:00.0", 200, 210)]
PANELS = 4


def paths(text: str, kind: str, width: str) -> list[str]:
    """The steps of the paths of a class and a width."""
    found = read_picture(text).iter(f"{SPACE}path")
    return [one.get("d", "") for one in found if (one.get("class"), one.get("stroke-width")) == (kind, width)]


def test_the_plot_can_be_read_and_says_in_words_what_it_shows() -> None:
    root = read_picture(plot(SAMPLES, MARKS, "7,495 claims in 50 minutes"))

    words = words_of(root)
    assert {"memory, MiB", "threads", "descriptors", "claims held", "45 min"} <= set(words)
    assert "kubelet plugin's memory 60 MiB at the start and 62 MiB at the end" in (root[1].text or "")


def test_every_panel_has_its_lines_and_every_mark() -> None:
    text = plot(SAMPLES, MARKS, "claims")

    legend = 1
    assert len(paths(text, "nvlink", "2")) == PANELS + legend
    assert len(paths(text, "edge", "2")) == PANELS - 1 + legend
    lines_of_axes = 3
    assert len(paths(text, "excluded", "1")) == PANELS * (1 + lines_of_axes)
    assert len(paths(text, "sick", "1")) == PANELS
    assert "lost at 200 s" in text


def test_a_long_run_is_drawn_with_fewer_points_than_samples() -> None:
    longest = max(paths(plot(SAMPLES, MARKS, "claims"), "nvlink", "2"), key=len)

    assert 300 < longest.count("L") < 700


def test_a_process_that_was_away_leaves_a_gap_in_nothing_but_its_line() -> None:
    away = [*SAMPLES[:10], Sample(20, {}, 0, 50), *SAMPLES[11:20]]

    read_picture(plot(away, [], "claims"))
