"""The journal: one file per claim that outlives the process, and in memory who holds which GPU.

Only this module reads and writes the folder. A file that cannot be read is put aside, never deleted,
and only its own claim suffers. Where not even that can be done, or where the file of a claim that is
known cannot be read any more, what is known of it stays, and who asks for that claim hears why.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from driver.errors import StorageError
from driver.process.durable import TEMPORARY_PREFIX, remove, write_atomically
from driver.process.stamp import Stamp, stamp_of
from kubeletplugin.journal.entry import Entry, HeldDevice, MalformedEntry, decode, encode
from kubeletplugin.wire.names import is_safe_uid
from kubeletplugin.wire.timing import NO_TIMING, Timing

_SUFFIX = ".json"
_ASIDE = "unreadable"
_MOST_ASIDE = 100
"""How many damaged files are kept for people beside the newest one: a sick disk makes more each day."""

NOT_OF_THE_FILE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of a read that say nothing about what was to be read."""


def _nobody() -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """A journal file that could not be read: whose it was, where it lies now, and why."""

    uid: str
    path: Path
    reason: str


class Journal:
    """Entries by claim UID. Callers hold the claim's lock (see ``locks``) around read and write.

    ``changed_elsewhere`` tells whether another instance may have written since it was last asked.
    ``on_change`` hears of each claim that this instance brings into another state; it must not block.
    """

    def __init__(
        self,
        folder: Path,
        changed_elsewhere: Callable[[], bool],
        on_change: Callable[[], None] = _nobody,
        timing: Timing = NO_TIMING,
    ) -> None:
        self._folder = folder
        self._on_change = on_change
        self._timing = timing
        self._changed_elsewhere = changed_elsewhere
        self._has_to_read = True
        self._lock = threading.RLock()
        self._released = threading.Condition(self._lock)
        self._entries: dict[str, Entry] = {}
        self._stamps: dict[str, Stamp | None] = {}
        self._by_place: dict[str, set[str]] = {}
        self._holding: set[str] = set()
        self._aside: list[SetAside] = []
        self._unread: dict[str, str] = {}
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"the journal's folder {folder} cannot be made: {error.strerror}",
                "free space, or make it writable",
            ) from error

    def get(self, uid: str) -> Entry | None:
        """The entry of a claim as it is on disk, or None.

        Raises StorageError where the disk does not give it.
        """
        with self._lock:
            self._refresh()
            if uid in self._unread:
                raise StorageError(
                    f"the journal's file {self._path(uid)} cannot be read: {self._unread[uid]}",
                    "check the disk; other claims are not concerned",
                )
            return self._entries.get(uid)

    def unreadable(self) -> frozenset[str]:
        """The claims that have a file which can neither be read nor put aside."""
        with self._lock:
            self._refresh()
            return frozenset(self._unread.keys() - self._entries.keys())

    def entries(self) -> tuple[Entry, ...]:
        """All entries, tombstones included, sorted by UID."""
        with self._lock:
            self._refresh()
            return tuple(self._entries[uid] for uid in sorted(self._entries))

    def held(self) -> tuple[Entry, ...]:
        """The entries of the claims that hold devices, sorted by UID.

        For loops: tombstones stay for ten minutes, and a node of short pods has thousands.
        """
        with self._lock:
            self._refresh()
            return tuple(self._entries[uid] for uid in sorted(self._holding))

    def holders(self, pci: str) -> tuple[Entry, ...]:
        """The entries of the claims that hold a device of the GPU at this PCI address."""
        with self._lock:
            self._refresh()
            return self._holders(pci)

    def holders_of(self, device: HeldDevice) -> tuple[Entry, ...]:
        """The entries of the claims that hold something where the device lies, as of the last look.

        That are its GPUs, or for a device that lies on none, the device itself. Callers have looked since
        they hold the locks of those places, which keep every instance from changing what is held there.
        """
        with self._lock:
            found = {entry.uid: entry for place in device.places for entry in self._holders(place)}
            return tuple(found.values())

    def held_count(self) -> int:
        """How many claims hold devices."""
        with self._lock:
            return len(self._holding)

    def put(self, entry: Entry) -> None:
        """Write an entry, then remember it. Raises StorageError; then what is remembered stays."""
        started = time.perf_counter()
        write_atomically(self._path(entry.uid), encode(entry))
        self._timing.journal(time.perf_counter() - started)
        with self._lock:
            before = self._entries.get(entry.uid)
            self._remember(entry, None)
            if not entry.holds:
                self._released.notify_all()
        if before is None or before.state != entry.state:
            self._on_change()

    def forget(self, uid: str) -> None:
        """Remove an entry. Raises StorageError; then nothing has changed."""
        remove(self._path(uid))
        with self._lock:
            self._drop(uid)
            self._released.notify_all()
        self._on_change()

    def wait_for_release(self, timeout_seconds: float) -> None:
        """Return when some claim lets go of its devices, or after the time."""
        with self._released:
            self._released.wait(timeout_seconds)

    def take_set_aside(self) -> tuple[SetAside, ...]:
        """The files that were put aside since this was last asked."""
        with self._lock:
            self._refresh()
            aside, self._aside = tuple(self._aside), []
            return aside

    def _holders(self, place: str) -> tuple[Entry, ...]:
        return tuple(self._entries[uid] for uid in sorted(self._by_place.get(place, ())))

    def _path(self, uid: str) -> str:
        if not is_safe_uid(uid):
            raise StorageError(f"the UID {uid!r} cannot name a file", "a claim's UID is a UUID")
        return f"{self._folder}/{uid}{_SUFFIX}"

    def _refresh(self) -> None:
        self._has_to_read |= self._changed_elsewhere()
        if not self._has_to_read:
            return
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - names are what is looked at
            found = {uid for name in names if (uid := uid_of_entry(name)) is not None}
            for uid in sorted(found):
                self._load(uid)
        except OSError as error:
            raise StorageError(
                f"reading the journal in {self._folder} failed: {error.strerror}", "check the disk"
            ) from error
        for uid in (self._entries.keys() | self._unread.keys()) - found:
            self._drop(uid)
        self._has_to_read = bool(self._unread)

    def _load(self, uid: str) -> None:
        path = self._path(uid)
        try:
            stamp = stamp_of(path)
            if stamp is not None and self._stamps.get(uid) == stamp:
                return
            entry = decode(Path(path).read_bytes())
            if entry.uid != uid:
                raise MalformedEntry(f"it belongs to claim {entry.uid}")
        except FileNotFoundError:
            self._drop(uid)
        except MalformedEntry as error:
            self._drop(uid)
            self._put_aside(uid, path, str(error))
        except OSError as error:
            if error.errno in NOT_OF_THE_FILE:
                raise
            if uid in self._entries:
                self._unread[uid] = str(error.strerror)
            else:
                self._put_aside(uid, path, str(error.strerror))
        else:
            self._remember(entry, stamp)

    def _put_aside(self, uid: str, path: str, reason: str) -> None:
        aside = self._folder / _ASIDE
        target = aside / f"{uid}-{os.urandom(4).hex()}"
        try:
            aside.mkdir(mode=0o700, exist_ok=True)
            before = sorted(aside.iterdir(), key=lambda file: file.lstat().st_ctime_ns)
            for oldest in filter(Path.is_file, before[:-_MOST_ASIDE]):
                oldest.unlink()
            Path(path).rename(target)
        except OSError as error:
            self._unread[uid] = f"{reason}, and it cannot be put aside: {error.strerror}"
            return
        self._aside.append(SetAside(uid, target, reason))

    def _remember(self, entry: Entry, stamp: Stamp | None) -> None:
        self._drop(entry.uid)
        self._entries[entry.uid] = entry
        self._stamps[entry.uid] = stamp
        if entry.holds:
            self._holding.add(entry.uid)
            for place in entry.places:
                self._by_place.setdefault(place, set()).add(entry.uid)

    def _drop(self, uid: str) -> None:
        self._stamps.pop(uid, None)
        self._unread.pop(uid, None)
        self._holding.discard(uid)
        entry = self._entries.pop(uid, None)
        for place in entry.places if entry else ():
            holders = self._by_place.get(place, set())
            holders.discard(uid)
            if not holders:
                self._by_place.pop(place, None)


def uid_of_entry(name: str) -> str | None:
    """The claim whose entry a file of this name in the journal's folder is; None for other files."""
    uid = name.removesuffix(_SUFFIX)
    return uid if uid != name and not name.startswith(TEMPORARY_PREFIX) and is_safe_uid(uid) else None
