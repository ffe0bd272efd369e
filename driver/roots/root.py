"""A driver root as a value: where this process sees it, where the host has it, and what lies where in it."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from driver.roots.places import Place, place_at

SLASH = Path("/")

_MOST_LINKS = 40
"""As many as Linux follows before it answers ELOOP (path_resolution(7))."""


def below(root: Path, path: str) -> Path | None:
    """Where ``path`` really lies, all links followed below ``root``, which none leaves, as chroot(2) has it.

    A driver root is another system's: its absolute links mean files below it, not files of this container.

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


@dataclass(frozen=True, slots=True)
class Root:
    """The folder below which the NVIDIA driver is installed; paths below it are absolute, as ``/usr/lib64``.

    ``seen`` is where this process has it, ``on_host`` where the host has it. ``links`` is the folder of this
    process below which absolute links lead: the root itself, or that of the host.
    """

    place: Place
    seen: Path
    on_host: Path
    links: Path

    @classmethod
    def given(cls, seen: Path, on_host: Path | None = None) -> Root:
        """The root that was named by a flag; its links lead below itself, for nothing is known above it."""
        on_host = on_host or seen
        return cls(place_at(str(on_host)), seen, on_host, seen)

    def at(self, path: str) -> Path | None:
        """Where this process really finds what lies at a path below the root; None where nothing does."""
        if self.links == self.seen:
            return below(self.seen, path)
        return below(self.links, f"{self.seen.relative_to(self.links)}/{path}")

    def in_container(self, path: str) -> str:
        """The path that a file of the root has in containers."""
        for folder, there in self.place.moved:
            if path.startswith(f"{folder}/"):
                return there + path[len(folder) :]
        return path

    def for_host(self, path: str) -> str:
        """The path below the root by which the host finds the same file.

        Absolute links in a root file system of its own would lead the host astray, so they are followed here.
        """
        if self.links != self.seen or self.seen == self.on_host == SLASH:
            return path
        real = self.at(path)
        if real is None or real.resolve() == Path(f"{self.seen}/{path}").resolve():
            return path
        return f"/{real.relative_to(self.seen)}"
