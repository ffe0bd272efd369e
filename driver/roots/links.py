"""Follows symbolic links as a process would whose root folder is another one, as chroot(2) has it.

A driver root is another system's: its absolute links mean files below it, not files of this container.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

_MOST_LINKS = 40
"""As many as Linux follows before it answers ELOOP (path_resolution(7))."""


def below(root: Path, path: str) -> Path | None:
    """Where ``path`` really lies, all links followed below ``root``, which no link leaves.

    None where nothing lies there, or a link leads nowhere or in a circle.
    """
    base = str(root).rstrip("/")
    parts = [part for part in path.split("/") if part][::-1]
    found: list[str] = []
    links = 0
    while parts:
        part = parts.pop()
        if part == ".":
            continue
        if part == "..":
            found = found[:-1]
            continue
        here = "/".join((base, *found, part))
        try:
            target = os.readlink(here)  # noqa: PTH115 - text: every look follows some hundred
        except OSError as error:
            if error.errno != errno.EINVAL:
                return None
            found.append(part)  # it is there, and no link
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        if target.startswith("/"):
            found = []
        parts += [one for one in target.split("/") if one][::-1]
    return Path("/".join((base, *found)) or "/")
