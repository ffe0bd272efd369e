"""A disk that a power cut may catch at any moment, with whatever was not written to it by fsync.

It follows the calls of ``os`` that change files, keeps what each name has stood for since its folder was
last written by fsync, and leaves any combination that a kernel might: a name as it was at any moment since
then, a file that was not written by fsync empty or cut anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(eq=False)
class _File:
    """What was written, and whether it was written by fsync since."""

    content: bytes = b""
    lasts: bool = False


class PowerCutDisk:
    """The files that lie directly in the folders, which themselves are never lost."""

    def __init__(self, *folders: Path) -> None:
        self._folders = sorted(str(folder) for folder in folders)
        self._names: dict[str, list[_File | None]] = {}
        self._open: dict[int, _File | str] = {}
        self.asked = ""
        """The file whose fate is chosen."""
        self._take_as_it_is()

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
        """Leave what a power cut might; ``choose(n)`` picks one of ``n`` possibilities, from 0."""
        for path, stood_for in self._names.items():
            self.asked = path
            file = stood_for[choose(len(stood_for))]
            if file is None:
                Path(path).unlink(missing_ok=True)
            else:
                whole = len(file.content)
                lengths = (0, 1, whole // 2, whole - 1, whole)
                length = whole if file.lasts else lengths[choose(len(lengths))]
                Path(path).write_bytes(file.content[: max(length, 0)])
        self._take_as_it_is()

    def _take_as_it_is(self) -> None:
        """Whatever lies in the folders now is on the disk to stay."""
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
                self._stands_for(name, now)
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
            for path, stood_for in self._names.items():
                if str(Path(path).parent) == synced:
                    del stood_for[:-1]

    def _closed(self, _: None, descriptor: int) -> None:
        self._open.pop(descriptor, None)

    def _renamed(self, _: None, source: Any, target: Any, **__: Any) -> None:
        old, new = os.fspath(source), os.fspath(target)
        if self._is_ours(old):
            if self._is_ours(new):
                self._stands_for(new, self._now(old))
            self._stands_for(old, None)

    def _unlinked(self, _: None, path: Any, **__: Any) -> None:
        if self._is_ours(os.fspath(path)):
            self._stands_for(os.fspath(path), None)

    def _is_ours(self, name: str) -> bool:
        return str(Path(name).parent) in self._folders

    def _now(self, name: str) -> _File | None:
        return self._names.get(name, [None])[-1]

    def _stands_for(self, name: str, file: _File | None) -> None:
        self._names.setdefault(name, [None]).append(file)


def _followed(real: Callable[..., Any], follow: Callable[..., None]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        result = real(*args, **named)
        follow(result, *args, **named)
        return result

    return call
