"""Which files of the repository are pages of the site, and their paths there.

The pages of ``docs/`` keep their paths. The Markdown files of the project and of the scenarios are pages,
too. Any other file or folder that a page links to gets a page that shows it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PROJECT = ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")
"""Pages about the project as a whole, by their names without ``.md``, as far as they exist."""
SCENARIOS = ROOT / "deploy" / "scenarios"
SHOWN = "files"
"""The folder of the site with the pages that show files."""

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


def adopted() -> dict[str, str]:
    """The Markdown files outside of ``docs/`` that are pages: path in the repository -> path in the site."""
    project = {
        f"{name}.md": f"project/{name.lower()}.md" for name in PROJECT if (ROOT / f"{name}.md").is_file()
    }
    scenarios = {
        readme.relative_to(ROOT).as_posix(): f"scenarios/{readme.parent.name}.md"
        for readme in sorted(SCENARIOS.glob("*/README.md"))
    }
    overview = SCENARIOS / "README.md"
    first = {overview.relative_to(ROOT).as_posix(): "scenarios/index.md"} if overview.is_file() else {}
    return {**project, **first, **scenarios}


def resolve(page: str, link: str) -> str:
    """The path in the repository that a link in the file ``page`` leads to, without a slash at its end."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def site_path(path: str) -> str:
    """The page of the site for a file or a folder of the repository."""
    if path in (pages := adopted()):
        return pages[path]
    if f"{path}/README.md" in pages:
        return pages[f"{path}/README.md"]
    inside = path.removeprefix("docs/")
    if inside != path and (DOCS / inside).is_file():
        return inside
    return f"{SHOWN}/{path}.md"


def relative(page: str, target: str) -> str:
    """The relative link from one page of the site to another."""
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def page_of(path: str) -> str:
    """The Markdown of the page for a path of the repository; raises ValueError for what cannot be shown."""
    place = ROOT / path
    if place.is_dir():
        return f"{_UNSEARCHED}# {path}/\n\n{_entries(path, place)}"
    size = place.stat().st_size
    if size > _MOST_BYTES:
        raise ValueError(f"{path} has {size} bytes, and a page shows {_MOST_BYTES}: link to its folder")
    text = place.read_text()
    # A fence has to be longer than any run of backticks in the text.
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
