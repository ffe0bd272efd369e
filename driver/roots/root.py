"""A driver root as a value: its path for this process and for the host, and the paths of files in it."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field, fields
from pathlib import Path

from driver.roots.places import Place, place_at

SLASH = Path("/")

# Linux follows as many links before it answers ELOOP (path_resolution(7)).
_MOST_LINKS = 40


def below(root: Path, path: str) -> Path | None:
    """The real path of ``path`` below ``root``. Links are followed as after chroot(2): none leads out of it.

    None if nothing is there, or a link leads nowhere or in a circle.
    """
    # A driver root belongs to another system. Its absolute links mean files below it, where the kernel, asked
    # by this process, would follow them into this container's own files.
    base = str(root).rstrip("/")
    parts = [part for part in path.split("/") if part][::-1]
    found: list[str] = []
    links = 0
    while parts:
        part = parts.pop()
        if part == ".":
            continue
        if part == "..":
            # At the top ``..`` stays at the top, as in a chroot.
            found = found[:-1]
            continue
        here = "/".join((base, *found, part))
        try:
            target = os.readlink(here)  # noqa: PTH115 - text: every probe follows some hundred
        except OSError as error:
            # EINVAL: it exists and is not a link. Anything else, ENOENT above all: there is nothing.
            if error.errno != errno.EINVAL:
                return None
            found.append(part)
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
    """The folder below which the NVIDIA driver is installed. Paths below it begin with ``/``: ``/usr/lib64``.

    ``seen`` is its path for this process, ``on_host`` its path on the host. ``links`` is the folder, for this
    process, below which its absolute links lead: the root itself, or the host's root.
    """

    place: Place
    seen: Path
    on_host: Path
    links: Path

    @classmethod
    def given(cls, seen: Path, on_host: Path | None = None) -> Root:
        """The root from a flag. Its links lead to files below it, since nothing is known of what is above."""
        on_host = on_host or seen
        return cls(place_at(str(on_host)), seen, on_host, seen)

    def at(self, path: str) -> Path | None:
        """The real path, for this process, of a path below the root; None if nothing is there."""
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
        """The path below the root by which the host finds the same file."""
        # The runtime of the host opens this path without a chroot, so it would follow absolute links of a
        # foreign root file system into the host's own files. Such links are followed here.
        if self.links != self.seen or self.seen == self.on_host == SLASH:
            return path
        real = self.at(path)
        if real is None or real.resolve() == Path(f"{self.seen}/{path}").resolve():
            return path
        return f"/{real.relative_to(self.seen)}"

    def remembering(self) -> Root:
        """The same root for one search, which asks the kernel only once about each folder."""
        return _RememberingRoot(*(getattr(self, one.name) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class _RememberingRoot(Root):
    """A root that knows the real paths of the folders it was asked about; None if one is not there."""

    folders: dict[str, Path | None] = field(default_factory=dict, compare=False)

    def at(self, path: str) -> Path | None:
        # A search asks for hundreds of files, most of them in folders that do not exist.
        folder, _, name = path.rpartition("/")
        if not folder or name in ("", ".", ".."):
            return Root.at(self, path)
        if folder not in self.folders:
            self.folders[folder] = self.at(folder)
        above = self.folders[folder]
        if above is None:
            return None
        here = f"{above}/{name}"
        try:
            os.readlink(here)  # noqa: PTH115 - see above
        except OSError as error:
            return Path(here) if error.errno == errno.EINVAL else None
        return Root.at(self, path)
