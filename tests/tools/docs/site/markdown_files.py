"""All Markdown of the repository."""

import os
from pathlib import Path

from tools.docs.site.places import ROOT

_NOT_OURS = {"site", "dist", "node_modules", "__pycache__"}


def markdown_files() -> list[str]:
    """The paths of all Markdown files in the repository, without what is built or hidden there."""
    found: list[Path] = []
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [name for name in inner if not name.startswith(".") and name not in _NOT_OURS]
        found += [Path(folder, name) for name in names if name.endswith(".md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)
