"""Pictures of the documentation are shown, have words for those who cannot see them, and fetch nothing."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from gpuctl.plan.planned import plan_node
from tools.docs.pictures import FOLDER, ROOT, terminal_picture

SVG = "http://www.w3.org/2000/svg"


def test_every_picture_is_shown_on_a_page_with_words_in_its_place() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    shown = "\n".join(page.read_text() for page in pages)

    assert [file.name for file in FOLDER.iterdir() if f"pictures/{file.name})" not in shown] == []
    assert "![](" not in shown


def test_a_picture_of_a_terminal_has_words_and_fetches_no_font() -> None:
    text = terminal_picture(list(plan_node("a30-quad", "node-a", None).slices), [])

    root = ET.fromstring(text)  # noqa: S314 # it is our own
    assert (root.get("role"), root.get("aria-label")) == ("img", "gpuctl status --watch")
    assert "1 node, 4 GPUs: all free" in (root.findtext(f"{{{SVG}}}desc") or "")
    assert "http" not in text.replace(SVG, "")
