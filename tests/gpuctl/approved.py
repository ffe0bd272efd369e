"""Holds what a command prints to the approved text of its situation, a file in ``tests/gpuctl/approved``."""

import os
from pathlib import Path

APPROVED = Path(__file__).with_name("approved")


def approve(situation: str, text: str) -> None:
    """The text is the approved one; ``situation`` is a path without an ending, such as ``plan/one-node``.

    With APPROVE=1 in the environment the text is written, so that ``git diff`` shows what would change.
    """
    file = APPROVED / f"{situation}.txt"
    if os.environ.get("APPROVE") == "1":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert file.exists(), (
        f"no text is approved for {situation}: run the test with APPROVE=1 and read the file"
    )
    assert text == file.read_text(), f"not as in {file}: run with APPROVE=1, and read the difference in git"
