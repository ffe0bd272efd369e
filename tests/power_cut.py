"""A disk on which the power may fail at any moment.

It follows the calls of ``os`` that change files, and remembers which files each name has named since the last
fsync of its folder. A power cut then leaves one of the states that a kernel may leave: each name as it was at
some moment since that fsync, and a file without an fsync of its own empty or cut anywhere.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(eq=False)
class _File:
    """The content of a file, and whether fsync was called after the last write."""

    content: bytes = b""
    lasts: bool = False


class PowerCutDisk:
    """The files directly in some folders; the folders themselves are never lost."""

    def __init__(self, *folders: Path) -> None:
        self._folders = sorted(str(folder) for folder in folders)
        self._names: dict[str, list[_File | None]] = {}
        self._open: dict[int, _File | str] = {}
        self.asked = ""
        """The file for which ``cut`` is choosing a state."""
        self._take_as_written()

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Follow what this process does to the files while the block runs."""
        with pytest.MonkeyPatch.context() as patch:
            follows: dict[str, Callable[..., None]] = {
                "open": self._opened,
                "write": self._written,
                "fsync": self._synced,
                "close": self._closed,
                "rename": self._renamed,
                "replace": self._renamed,
                "unlink": self._unlinked,
                "remove": self._unlinked,
            }
            for name, follow in follows.items():
                patch.setattr(os, name, _followed(getattr(os, name), follow))
            yield

    def cut(self, choose: Callable[[int], int]) -> None:
        """Cut the power: put the files into a possible state; ``choose(n)`` picks one of ``n``, from 0."""
        for path, named in self._names.items():
            self.asked = path
            file = named[choose(len(named))]
            if file is None:
                Path(path).unlink(missing_ok=True)
            else:
                whole = len(file.content)
                # Without fsync the kernel may have written the new size and any part of the data, or nothing.
                lengths = (0, 1, whole // 2, whole - 1, whole)
                length = whole if file.lasts else lengths[choose(len(lengths))]
                Path(path).write_bytes(file.content[: max(length, 0)])
        self._take_as_written()

    def _take_as_written(self) -> None:
        """Take the files in the folders as written to the disk for good."""
        there = (Path(folder) for folder in self._folders if Path(folder).is_dir())
        # In an order that does not depend on the folder, so that a choice means the same in another run.
        found = sorted(path for folder in there for path in folder.iterdir() if path.is_file())
        self._names = {str(path): [_File(path.read_bytes(), lasts=True)] for path in found}
        self._open.clear()

    def _opened(self, descriptor: int, path: Any, flags: int, *_: Any, **__: Any) -> None:
        name = os.fspath(path)
        self._open.pop(descriptor, None)
        if name in self._folders:
            self._open[descriptor] = name
        elif self._is_ours(name) and flags & (os.O_WRONLY | os.O_RDWR):
            now = self._now(name)
            if now is None:
                now = _File()
                self._name_file(name, now)
            self._open[descriptor] = now

    def _written(self, count: int, descriptor: int, data: Any) -> None:
        file = self._open.get(descriptor)
        if isinstance(file, _File):
            file.content, file.lasts = file.content + bytes(data)[:count], False

    def _synced(self, _: None, descriptor: int) -> None:
        synced = self._open.get(descriptor)
        if isinstance(synced, _File):
            synced.lasts = True
        elif synced is not None:
            for path, named in self._names.items():
                if str(Path(path).parent) == synced:
                    # fsync of a folder writes its names: only the latest is possible from now on.
                    del named[:-1]

    def _closed(self, _: None, descriptor: int) -> None:
        self._open.pop(descriptor, None)

    def _renamed(self, _: None, source: Any, target: Any, **__: Any) -> None:
        old, new = os.fspath(source), os.fspath(target)
        if self._is_ours(old):
            if self._is_ours(new):
                # The new name may be on the disk before the old one is gone, or after.
                self._name_file(new, self._now(old))
            self._name_file(old, None)

    def _unlinked(self, _: None, path: Any, **__: Any) -> None:
        if self._is_ours(os.fspath(path)):
            self._name_file(os.fspath(path), None)

    def _is_ours(self, name: str) -> bool:
        return str(Path(name).parent) in self._folders

    def _now(self, name: str) -> _File | None:
        return self._names.get(name, [None])[-1]

    def _name_file(self, name: str, file: _File | None) -> None:
        self._names.setdefault(name, [None]).append(file)


def _followed(real: Callable[..., Any], follow: Callable[..., None]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        result = real(*args, **named)
        follow(result, *args, **named)
        return result

    return call
