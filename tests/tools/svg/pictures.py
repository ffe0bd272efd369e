"""Reads a picture for tests, and says what every picture has to be."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

SPACE = "{http://www.w3.org/2000/svg}"


def read_picture(text: str) -> ET.Element:
    """The root of a picture that is valid, has words for who cannot see it, and refers to nothing outside."""
    root = ET.fromstring(text)  # noqa: S314 # it is our own
    assert root.tag == f"{SPACE}svg"
    assert [one.tag for one in root[:2]] == [f"{SPACE}title", f"{SPACE}desc"]
    assert root.get("role") == "img"
    assert root.get("aria-label") == (root[0].text or "")
    assert "prefers-color-scheme:dark" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    style = root.findtext(f"{SPACE}style") or ""
    known = set(re.findall(r"\.([a-z]+)\{", style))
    for one in root.iter():
        assert set((one.get("class") or "").split()) <= known, one.get("class")
        if one.tag == f"{SPACE}rect" and one.get("x") is not None:
            assert float(one.get("width", "0")) >= 0
            assert float(one.get("x", "0")) + float(one.get("width", "0")) <= width + 1
            assert float(one.get("y", "0")) + float(one.get("height", "0")) <= height + 1
    return root


def words_of(root: ET.Element) -> list[str]:
    """The texts that are seen, from first to last."""
    return [one.text or "" for one in root.iter(f"{SPACE}text")]
