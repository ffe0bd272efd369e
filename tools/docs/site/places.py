"""Which files of the repository are pages of the site, and under which path.

The pages of ``docs/`` keep theirs. Markdown of other folders is a page too; any other file or folder that a
page links to gets a page that shows it.
"""

from __future__ import annotations

import posixpath
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PROJECT = ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")
"""Pages of the project as a whole, by their names without ``.md``; those that are there are taken."""
SCENARIOS = ROOT / "deploy" / "scenarios"
SHOWN = "files"
"""The folder of the site with the pages that show files."""


def adopted() -> dict[str, str]:
    """Markdown outside of ``docs/`` that is a page: its path in the repository, and that in the site."""
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
    """The path in the repository that a link of the file ``page`` leads to, without a slash at its end."""
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
    """How one page of the site links to another."""
    return posixpath.relpath(target, posixpath.dirname(page) or ".")
