"""A page that shows a file of the repository, or what a folder holds."""

from __future__ import annotations

import re
from pathlib import Path

from tools.docs.site.places import ROOT, relative, site_path

_LANGUAGES = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".py": "python",
    ".toml": "toml",
    ".sh": "sh",
    ".go": "go",
    ".c": "c",
}
_MOST_BYTES = 200_000
_UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"


def page_of(path: str) -> str:
    """The Markdown of the page for a path of the repository; raises ValueError for what cannot be shown."""
    place = ROOT / path
    if place.is_dir():
        return f"{_UNSEARCHED}# {path}/\n\n{_entries(path, place)}"
    size = place.stat().st_size
    if size > _MOST_BYTES:
        raise ValueError(f"{path} has {size} bytes, and a page shows {_MOST_BYTES}: link to its folder")
    text = place.read_text()
    marks = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return (
        f"{_UNSEARCHED}# {path}\n\n{marks}{_LANGUAGES.get(place.suffix, 'text')}\n{text.rstrip()}\n{marks}\n"
    )


def entries(path: str) -> list[str]:
    """The files and folders that the page of a folder links to; none for a file."""
    place = ROOT / path
    return [f"{path}/{entry.name}" for entry in _shown_in(place)] if place.is_dir() else []


def _entries(path: str, place: Path) -> str:
    here = site_path(path)
    pages = {entry: relative(here, site_path(f"{path}/{entry.name}")) for entry in _shown_in(place)}
    return "".join(f"- [{entry.name}{'/' * entry.is_dir()}]({page})\n" for entry, page in pages.items())


def _shown_in(place: Path) -> list[Path]:
    return sorted(
        entry
        for entry in place.iterdir()
        if not entry.name.startswith((".", "__")) and (entry.is_dir() or entry.stat().st_size <= _MOST_BYTES)
    )
