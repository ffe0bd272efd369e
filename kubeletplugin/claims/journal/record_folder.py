"""Keeps small files of one kind in a folder, and remembers their content.

The rules for all such folders:

- A file is read once. It is read again if another instance may have written it and its stamp has changed.
- A file is written as a whole, and remembered after it was written.
- A file that cannot be understood, or cannot be read, is damaged. Its owner decides what that means. Other
  files are not affected. It is read again each time until it is whole or gone.
- If the process lacks file descriptors or memory, that says nothing about the file. The caller gets the
  error, and everything is read again.
- A file whose name the owner does not know is left alone.

``docs/architecture.md`` says what the owners decide.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from driver.errors import StorageError
from driver.process.durable import make_private_folder, regular_only, remove, storage_errors, write_atomically
from driver.process.stamp import Stamp, stamp_of

# Errors of open(2) that are about this process or the machine, and not about the file.
_LACKS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

MALFORMED = (ValueError, TypeError, KeyError, AttributeError)
"""The exceptions of code that reads a JSON document with another structure than it expects."""

K = TypeVar("K", str, int, tuple[str, str])
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecordFiles(Generic[K, T]):
    """How a record becomes a file.

    ``key_of(name)`` returns None for a file that is not the owner's. ``decode`` raises one of ``MALFORMED``.
    ``places`` returns what a record can be found by, besides its key: the PCI addresses of its GPUs, for
    example.
    """

    key_of: Callable[[str], K | None]
    name_of: Callable[[K], str]
    decode: Callable[[K, bytes], T]
    encode: Callable[[T], bytes]
    places: Callable[[T], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Damage(Generic[T]):
    """A file that cannot be read, and why.

    ``before`` is the record that was read from it earlier, if the file was readable then.
    """

    path: Path
    reason: str
    before: T | None = None


@dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    """What is remembered of a file. ``wrong`` says why its content is not known, and is empty if it is known.

    If it is not known, ``record`` is what the owner assumes instead.
    """

    record: T | None
    wrong: str = ""
    stamp: Stamp | None = None


class RecordFolder(Generic[K, T]):
    """The files of one folder, with their content in memory. Only one caller at a time may write a record.

    ``damaged`` returns what to remember of a damaged file, None if its owner has moved it away.
    ``changed_elsewhere`` says whether another instance may have written since the last call. All methods
    raise StorageError.
    """

    def __init__(
        self,
        folder: Path,
        files: RecordFiles[K, T],
        damaged: Callable[[K, Damage[T]], Kept[T] | None],
        changed_elsewhere: Callable[[], bool],
        *,
        made_late: bool = False,
    ) -> None:
        """``made_late``: make the folder with the first record, if most nodes never have such a record."""
        self._folder = folder
        self._files: RecordFiles[K, T] = files
        self._damaged: Callable[[K, Damage[T]], Kept[T] | None] = damaged
        self._changed_elsewhere = changed_elsewhere
        self._made_late = made_late
        self._has_to_read = True
        # Reentrant, since get() and the like call _remember() while they refresh.
        self._lock = threading.RLock()
        self._known: dict[K, Kept[T]] = {}
        # By place, its records by key: a GPU may have hundreds of shares, and each claim for one comes here.
        self._at: dict[str, dict[K, T]] = {}
        if not made_late:
            make_private_folder(folder)

    def get(self, key: K) -> Kept[T] | None:
        """What is known of a record, None if it has no file."""
        with self._lock:
            self._refresh()
            return self._known.get(key)

    def all(self) -> Mapping[K, Kept[T]]:
        """What is known of all files, in the order of their keys."""
        with self._lock:
            self._refresh()
            return {key: self._known[key] for key in sorted(self._known)}

    def records(self) -> tuple[T, ...]:
        """The records of all files, in the order of their keys."""
        return tuple(kept.record for kept in self.all().values() if kept.record is not None)

    def at(self, places: Iterable[str]) -> tuple[T, ...]:
        """The records at any of the places, in the order of their keys."""
        with self._lock:
            self._refresh()
            return self.at_in_memory(places)

    def places_beside(self, places: Iterable[str]) -> set[str]:
        """All places of the records at any of the places, these included; empty without such a record."""
        return {place for record in self.at(places) for place in self._files.places(record)}

    def at_in_memory(self, places: Iterable[str]) -> tuple[T, ...]:
        """As ``at``, without reading the folder."""
        with self._lock:
            found: dict[K, T] = {}
            for place in places:
                found |= self._at.get(place, {})
        return tuple(map(found.__getitem__, sorted(found)))

    def count_at(self, place: str) -> int:
        """How many records are at a place, without reading the folder."""
        return len(self._at.get(place, ()))

    def put(self, key: K, record: T) -> T | None:
        """Write a record and return the one before. If it cannot be written, the one before stays known."""
        if self._made_late:
            make_private_folder(self._folder)
        data = self._files.encode(record)
        # First the file, then the memory: what is known must be on the disk.
        write_atomically(self.path(key), data)
        before = self._remember(key, Kept(record))
        return before.record if before else None

    def forget(self, key: K) -> T | None:
        """Remove a record and return it. If it cannot be removed, it stays known."""
        remove(self.path(key))
        before = self._remember(key, None)
        return before.record if before else None

    def path(self, key: K) -> str:
        """The path of a record's file, as text: every claim comes here several times."""
        name = self._files.name_of(key)
        # The key comes from outside, a claim's UID for example. A name that does not lead back to it could be
        # another file's, or a path.
        if self._files.key_of(name) != key:
            raise StorageError(
                f"{name[:128]!r} cannot be the name of a file",
                "give the UID of a claim, or the name of a device",
            )
        return f"{self._folder}/{name}"

    def _refresh(self) -> None:
        """Read what another instance may have written."""
        # ``|=`` and not ``or``: the question must be asked each time, since asking it resets it.
        self._has_to_read |= self._changed_elsewhere()
        if not self._has_to_read:
            return
        found = self._listed()
        for key in sorted(found):
            self._load(key)
        # Another instance, or an admin, has removed these.
        for key in self._known.keys() - found:
            self._remember(key, None)
        # A damaged file may be repaired by hand, which nothing reports.
        self._has_to_read = any(kept.wrong for kept in self._known.values())

    def _listed(self) -> set[K]:
        with storage_errors(self._folder, "listing"):
            try:
                names = os.listdir(self._folder)  # noqa: PTH208 - names are what is looked at
            except FileNotFoundError:
                if not self._made_late:
                    raise
                names = []
        return {key for name in names if (key := self._files.key_of(name)) is not None}

    def _load(self, key: K) -> None:
        path, known = self.path(key), self._known.get(key)
        kept: Kept[T] | None
        try:
            # Before the content is read. If the file is replaced in between, the stamp is the older one, and
            # the file is read again next time.
            stamp = stamp_of(path)
            if known is not None and stamp is not None and known.stamp == stamp:
                return
            with open(path, "rb", opener=regular_only) as file:
                kept = Kept(self._files.decode(key, file.read()), "", stamp)
        # Removed since the folder was listed.
        except FileNotFoundError:
            kept = None
        except MALFORMED as error:
            kept = self._damaged(key, Damage(Path(path), str(error) or type(error).__name__))
        except OSError as error:
            # The lack says nothing about the file, so it must not become a damaged record.
            refuse_lack(path, error)
            # The disk does not give the file now, but what it said is still known.
            before = known.record if known else None
            kept = self._damaged(key, Damage(Path(path), str(error.strerror), before))
        self._remember(key, kept)

    def _remember(self, key: K, kept: Kept[T] | None) -> Kept[T] | None:
        """Remember a file's content, None if there is no file. Returns what was remembered before."""
        with self._lock:
            known = self._known.pop(key, None)
            # The index has no empty sets, or it would grow with each claim of the node's life.
            for place in self._places(known):
                self._at[place].pop(key, None)
                if not self._at[place]:
                    del self._at[place]
            if kept is not None:
                self._known[key] = kept
            if kept is not None and kept.record is not None:
                for place in self._places(kept):
                    self._at.setdefault(place, {})[key] = kept.record
        return known

    def _places(self, kept: Kept[T] | None) -> Iterable[str]:
        return self._files.places(kept.record) if kept is not None and kept.record is not None else ()


class RecordIndex:
    """Finds records in several folders, so that callers skip their owners if there are none."""

    def __init__(self, *folders: RecordFolder[Any, Any]) -> None:
        self._folders = folders

    def places_beside(self, places: Collection[str]) -> set[str]:
        """As ``RecordFolder.places_beside``, of all folders. Raises StorageError."""
        return {place for folder in self._folders for place in folder.places_beside(places)}


def refuse_lack(path: str | Path, error: OSError) -> None:
    """Raise StorageError if the error of a read is that the process lacks something."""
    if error.errno in _LACKS:
        raise StorageError(
            f"reading {path} failed: {error.strerror}",
            "find out what uses it up on the node, or give the plugin more of it",
        ) from error


def compact_json(body: Mapping[str, Any]) -> bytes:
    """A document as JSON on one line; the same content always gives the same bytes."""
    return f"{json.dumps(body, sort_keys=True, separators=(',', ':'))}\n".encode()
