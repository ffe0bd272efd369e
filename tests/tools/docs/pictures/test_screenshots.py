"""Screenshots are what people see: the live view is exported with words for it, and fetches nothing."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from tools.docs.pictures.__main__ import FOLDER
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
    page, watch = ((FOLDER / name).read_bytes() for name in SCREENSHOTS)
    assert page.startswith(PNG)
    assert watch.startswith(b"<svg")
    assert b"http://" not in watch.replace(b"http://www.w3.org/2000/svg", b"")
