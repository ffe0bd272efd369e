"""Every drawn picture can be read in a browser, light and dark: nothing is cut, overlaps or fades away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tools.docs.pictures.__main__ import FOLDER, PICTURES
from tools.testbed.chromium import Tab, chromium

LEAST_CONTRAST = 4.5
"""WCAG 2.2, AA."""


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    """A browser for all pictures."""
    with chromium() as opened:
        opened.size(1280, 1000)
        yield opened


def looked_at(tab: Tab, name: str) -> dict[str, Any]:
    """What a browser makes of a picture."""
    tab.open(f"file://{FOLDER / name}")
    return dict(tab.evaluate(LOOK))


@pytest.mark.parametrize("name", PICTURES)
def test_no_words_are_cut_or_lie_on_others(tab: Tab, name: str) -> None:
    seen = looked_at(tab, name)

    assert seen["texts"] > 5
    assert seen["outside"] == []
    assert seen["overlapping"] == []
    assert seen["sticking_out"] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PICTURES)
def test_words_stand_out_from_what_is_below_them(tab: Tab, name: str, scheme: str) -> None:
    tab.media(scheme)

    assert [one for one in looked_at(tab, name)["contrasts"] if one[1] < LEAST_CONTRAST] == []


def test_the_demo_shows_its_end_to_people_who_prefer_reduced_motion(tab: Tab) -> None:
    for motion, shown in (("reduce", True), ("no-preference", False)):
        feature = {"name": "prefers-reduced-motion", "value": motion}
        tab.call("Emulation.setEmulatedMedia", features=[feature])
        tab.open(f"file://{FOLDER / 'demo.svg'}")

        last, opacity = tab.evaluate(LAST_LINE)

        assert (opacity == "1") == shown
        if shown:
            top, bottom, height = last
            assert 0 < top < bottom < height


LAST_LINE = """(() => {
  const lines = [...document.querySelectorAll(".roll text")], last = lines.at(-1).getBoundingClientRect();
  const whole = document.documentElement.getBoundingClientRect();
  return [[last.top, last.bottom, whole.height], getComputedStyle(lines.at(-1).parentElement).opacity];
})()"""

LOOK = """(() => {
  const root = document.documentElement, whole = root.getBoundingClientRect();
  const texts = [...root.querySelectorAll("text")].filter((one) => one.textContent.trim());
  const boxes = [...root.querySelectorAll("rect")];
  const order = new Map([...root.querySelectorAll("*")].map((one, place) => [one, place]));
  const around = (one) => one.getBoundingClientRect();
  const rgb = (text) => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255)
    .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
  const filled = boxes.filter((one) => getComputedStyle(one).fill !== "none");
  const below = (one) => {
    const {left, right, top, bottom} = around(one), x = (left + right) / 2, y = (top + bottom) / 2;
    return filled.filter((box) => {
      const place = around(box);
      return order.get(box) < order.get(one) && place.left <= x && x <= place.right &&
        place.top <= y && y <= place.bottom;
    }).at(-1);
  };
  const hidden = (one) => {
    const {left, right, top, bottom} = around(one), x = (left + right) / 2, y = (top + bottom) / 2;
    return filled.some((box) => {
      const place = around(box);
      return order.get(box) > order.get(one) && place.left <= x && x <= place.right &&
        place.top <= y && y <= place.bottom;
    });
  };
  const seen = texts.filter((one) => !hidden(one));
  const found = {texts: seen.length, outside: [], overlapping: [], sticking_out: [], contrasts: []};
  seen.forEach((one, place) => {
    const its = around(one), words = one.textContent;
    if (its.left < whole.left || its.right > whole.right || its.top < whole.top || its.bottom > whole.bottom)
      found.outside.push(words);
    for (const other of seen.slice(place + 1)) {
      const theirs = around(other);
      const wide = Math.min(its.right, theirs.right) - Math.max(its.left, theirs.left);
      const high = Math.min(its.bottom, theirs.bottom) - Math.max(its.top, theirs.top);
      if (wide > 1 && high > 4) found.overlapping.push([words, other.textContent]);
    }
    const box = below(one), around_it = around(box);
    if (its.left < around_it.left - 1 || its.right > around_it.right + 1) found.sticking_out.push(words);
    const [a, b] = [light(rgb(getComputedStyle(one).fill)), light(rgb(getComputedStyle(box).fill))]
      .sort((x, y) => y - x);
    found.contrasts.push([words, (a + 0.05) / (b + 0.05)]);
  });
  return found;
})()"""
