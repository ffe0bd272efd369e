"""All Markdown of the repository."""

from __future__ import annotations

import subprocess

from docs_site.places import ROOT


def markdown_files() -> list[str]:
    """The paths of all Markdown files that git knows or would take, in the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted({path for path in listed.split("\0") if path and (ROOT / path).is_file()})
