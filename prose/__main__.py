"""Tells what of the documentation's prose breaks a rule.

``python -m prose [FILE...]`` looks at the files, at all pages without any. It writes a line for each finding,
and exits with 1 when there is one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from prose.rules import findings

ROOT = Path(__file__).resolve().parents[1]
HISTORIES = frozenset({"CHANGELOG.md", "ROADMAP.md"})
"""Pages that say what changed, or what is to."""


def pages() -> list[Path]:
    """All pages that people read."""
    scenarios = (ROOT / "deploy").rglob("README.md")
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *scenarios])


def main() -> int:
    """Look at the pages; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Look whether the documentation keeps the rules for its prose."
    )
    parser.add_argument("files", nargs="*", type=Path, help="the pages; all of them without")
    told = 0
    for page in parser.parse_args().files or pages():
        name = (
            page.resolve().relative_to(ROOT).as_posix() if page.resolve().is_relative_to(ROOT) else str(page)
        )
        for finding in findings(page.read_text(), is_history=page.name in HISTORIES):
            sys.stdout.write(f"{name}:{finding.line}: {finding.what}\n")
            told += 1
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
