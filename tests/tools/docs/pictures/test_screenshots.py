"""Screenshots are what people see: the live view is exported with words for it, and fetches nothing."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from tools.docs.pictures.__main__ import FOLDER
from tools.docs.pictures.demo_recording import ROWS, SECONDS, Line, animated
from tools.docs.pictures.node_pictures import ALL_TIERS, published
from tools.docs.pictures.screenshots import SCREENSHOTS, exported

PNG = b"\x89PNG\r\n\x1a\n"


def test_the_live_view_is_an_svg_with_words_and_without_another_host() -> None:
    text = exported(list(published("hgx-h100", ALL_TIERS)), [])

    root = ET.fromstring(text)  # noqa: S314 # it is our own
    assert root.get("aria-label") == "gpuctl status --watch on a terminal"
    assert "1 node, 8 GPUs: all free" in (root.findtext("{http://www.w3.org/2000/svg}desc") or "")
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_what_was_taken_lies_there() -> None:
    taken = {name: (FOLDER / name).read_bytes() for name in SCREENSHOTS}
    assert {name for name, data in taken.items() if data.startswith(PNG)} == {"page.png", "page-dark.png"}
    for name in ("status-watch.svg", "demo.svg"):
        assert taken[name].startswith(b"<svg")
        assert b"http://" not in taken[name].replace(b"http://www.w3.org/2000/svg", b"")


def test_the_demo_is_an_svg_that_moves_by_css_and_then_stays() -> None:
    lines = [Line("  0.6 s  \x1b[1mnode-0\x1b[0m offers 8 GPUs & more", 0.6), Line("", 0.7)]
    lines += [Line(f"│ GPU {number} │", 0.7) for number in range(2 * ROWS)]
    lines += [Line("", 0.7), Line("  9.2 s  all <ended>", 9.2)]

    text = animated(lines)

    root = ET.fromstring(text)  # noqa: S314 # it is our own
    assert (root.get("aria-label"), root.get("role")) == ("gpuctl demo on a terminal", "img")
    assert "It prints these steps: 0.6 s node-0 offers 8 GPUs & more 9.2 s all <ended>" in str(root[1].text)
    assert '<tspan class="b">node-0</tspan>' in text
    # The last line appears at the end, and the roll has then moved it into the window.
    delays = [float(one) for one in re.findall(r"animation-delay:([0-9.]+)s", text)]
    assert delays == sorted(delays)
    assert delays[-1] == SECONDS
    last = f"translateY({-18 * (len(lines) + 1 - ROWS)}px)"
    assert f"100.00%{{transform:{last}}}" in text
    assert f"transform:{last}" in text.partition("prefers-reduced-motion:reduce")[2]
    assert "<script" not in text


def test_the_recording_is_small_and_has_the_whole_story() -> None:
    text = (FOLDER / "demo.svg").read_text()

    assert len(text.encode()) <= 200_000
    for words in ("pod train runs", "batch-4 waits", "share GPU 0", "MPS is stopped"):
        assert words in text
