"""``python -m tools.docs.pictures`` draws the documentation's pictures; ``--check`` names stale ones."""

from __future__ import annotations

import argparse
import sys

from tools.docs.pictures.node_pictures import FOLDER, ROOT, drawn, stale


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


if __name__ == "__main__":
    sys.exit(main())
