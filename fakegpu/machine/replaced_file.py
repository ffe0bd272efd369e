"""Reads a file that is replaced by rename, again only when it was replaced."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")


class ReplacedFile(Generic[T]):
    """What a file says; ``parse`` reads its text and may raise ValueError."""

    def __init__(self, path: Path, parse: Callable[[str], T]) -> None:
        self.path = path
        self._parse = parse
        self._descriptor = -1
        self._inode = (-1, -1)
        self._value: list[T] = []

    def read(self) -> T:
        """What the file says now; raises FileNotFoundError, ValueError."""
        status = self.path.stat()
        if not self._value or (status.st_dev, status.st_ino) != self._inode:
            self._load()
        return self._value[0]

    def replace(self, text: str) -> None:
        """Replace the file. No fsync: a fake machine need not survive the crash of a real one."""
        temporary = self.path.with_name(f".{self.path.name}-{os.urandom(6).hex()}")
        temporary.write_text(text, encoding="utf-8")
        temporary.rename(self.path)

    def _load(self) -> None:
        # The file that was read stays open: its inode number cannot be given to a newer file, so
        # that equal numbers mean the same content.
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        with os.fdopen(os.dup(descriptor), encoding="utf-8") as file:
            text = file.read()
        try:
            self._value = [self._parse(text)]
        except ValueError:
            os.close(descriptor)
            raise
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor
        self._inode = (status.st_dev, status.st_ino)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
