"""The values of a pretend sysfs: a link to another place below its root, beside plain texts of files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinkTo:
    """A symbolic link to another place below the root."""

    path: str
