"""``python -m tools.docs.pictures`` draws the documentation's pictures; ``--check`` names stale ones."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tools.docs.pictures.before_and_after import before_and_after
from tools.docs.pictures.claim_picture import claim
from tools.docs.pictures.health_picture import health
from tools.docs.pictures.node_pictures import ROOT
from tools.docs.pictures.sharing_picture import sharing

FOLDER = ROOT / "docs" / "pictures"
PICTURES: Mapping[str, Callable[[], str]] = {
    "before-and-after.svg": before_and_after,
    "claim.svg": claim,
    "sharing.svg": sharing,
    "health.svg": health,
}
MEASURED = ("soak.svg",)
"""Plots, copied from where they were drawn. They differ each time, so they are never compared."""
KEPT = ("forms.svg", "topology.svg", "occupancy.svg")
"""Pictures that are not drawn again."""


def main() -> int:
    """Write or check the files, or take screenshots; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.pictures", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say which files are stale")
    words = "take these too, on a cluster that is made for it (needs chromium)"
    parser.add_argument("what", nargs="?", choices=("screenshots",), help=words)
    given = parser.parse_args()
    wanted = drawn()
    found = stale(wanted)
    if given.check:
        for file in found:
            sys.stderr.write(f"{file.relative_to(ROOT)} is stale: run python -m tools.docs.pictures\n")
        return 1 if found else 0
    FOLDER.mkdir(exist_ok=True)
    for file in found:
        file.write_text(wanted[file])
    if given.what == "screenshots":
        from tools.docs.pictures.screenshots import take

        take(FOLDER)
    return 0


def drawn() -> dict[Path, str]:
    """The files of the pictures: path -> text."""
    return {FOLDER / name: draw() for name, draw in PICTURES.items()}


def stale(wanted: Mapping[Path, str]) -> list[Path]:
    """The files that are missing or differ."""
    return [file for file, text in wanted.items() if not file.is_file() or file.read_text() != text]


if __name__ == "__main__":
    sys.exit(main())
