"""The journal: one file per claim that outlives the process, and in memory who holds which GPU.

Only this module reads and writes the folder. A file that cannot be read is put aside, never deleted,
and only its own claim suffers. Where not even that can be done, or where the file of a claim that is
known cannot be read any more, what is known of it stays, and who asks for that claim hears why.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from driver.errors import StorageError
from driver.process.durable import TEMPORARY_PREFIX
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, MalformedEntry, decode, encode
from kubeletplugin.claims.journal.record_folder import Damage, Kept, RecordFiles, RecordFolder
from kubeletplugin.kubelet.wire.names import is_safe_uid

_SUFFIX = ".json"
_ASIDE = "unreadable"
_MOST_ASIDE = 100
"""How many damaged files are kept for people beside the newest one: a sick disk makes more each day."""

_HOLDS = ""
"""Where all claims that hold devices are found, besides the places of these."""


def _nobody(_entry: Entry | None) -> None:
    """Nobody listens."""


def _nobody_counts(_seconds: float) -> None:
    """Nobody counts."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """A journal file that could not be read: whose it was, where it lies now, and why."""

    uid: str
    path: Path
    reason: str


class Journal:
    """Entries by claim UID. Callers hold the claim's lock (see ``locks``) around read and write.

    ``changed_elsewhere`` tells whether another instance may have written since it was last asked.
    ``on_change(entry)`` is called for each claim that this instance brings into another state, with None for
    one of which nothing was known; it must not block.
    ``timed`` gets how many seconds each write took.
    """

    def __init__(
        self,
        folder: Path,
        changed_elsewhere: Callable[[], bool],
        on_change: Callable[[Entry | None], None] = _nobody,
        timed: Callable[[float], None] = _nobody_counts,
    ) -> None:
        self._folder = folder
        self._on_change = on_change
        self._timed = timed
        self._files = RecordFolder(folder, _FILES, self._damaged, changed_elsewhere)
        self._released = threading.Condition()
        self._aside: list[SetAside] = []

    def get(self, uid: str) -> Entry | None:
        """The entry of a claim as it is on disk, or None.

        Raises StorageError where the disk does not give it.
        """
        known = self._files.get(uid)
        if known is not None and known.wrong:
            raise StorageError(
                f"the journal's file {self._files.path(uid)} cannot be read: {known.wrong}",
                "check the disk; other claims are not concerned",
            )
        return known.record if known else None

    def unreadable(self) -> frozenset[str]:
        """The claims that have a file which can neither be read nor put aside."""
        return frozenset(uid for uid, known in self._files.all().items() if known.record is None)

    def entries(self) -> tuple[Entry, ...]:
        """All entries, tombstones included, sorted by UID."""
        return self._files.records()

    def held(self) -> tuple[Entry, ...]:
        """The entries of the claims that hold devices, sorted by UID.

        For loops: tombstones stay for ten minutes, and a node of short pods has thousands.
        """
        return self._files.at([_HOLDS])

    def holders(self, pci: str) -> tuple[Entry, ...]:
        """The entries of the claims that hold a device of the GPU at this PCI address."""
        return self._files.at([pci])

    def holders_of(self, device: HeldDevice) -> tuple[Entry, ...]:
        """The entries of the claims that hold something where the device lies, as of the last look.

        That are its GPUs, or for a device that lies on none, the device itself. Callers have looked since
        they hold the locks of those places, which keep every instance from changing what is held there.
        """
        return self._files.at_in_memory(device.places)

    def held_count(self) -> int:
        """How many claims hold devices."""
        return self._files.count_at(_HOLDS)

    def put(self, entry: Entry) -> None:
        """Write an entry, then remember it. Raises StorageError; then what is remembered stays."""
        started = time.perf_counter()
        before = self._files.put(entry.uid, entry)
        seconds = time.perf_counter() - started
        if not entry.holds:
            self._tell_released()
        if before is None or before.state != entry.state:
            self._on_change(entry)
        self._timed(seconds)

    def forget(self, uid: str) -> None:
        """Remove an entry. Raises StorageError; then nothing has changed."""
        before = self._files.forget(uid)
        self._tell_released()
        self._on_change(before)

    def wait_for_release(self, timeout_seconds: float) -> None:
        """Return when some claim lets go of its devices, or after the time."""
        with self._released:
            self._released.wait(timeout_seconds)

    def take_set_aside(self) -> tuple[SetAside, ...]:
        """The files that were put aside since this was last asked."""
        self._files.all()
        return tuple(self._aside.pop(0) for _ in range(len(self._aside)))

    def _tell_released(self) -> None:
        with self._released:
            self._released.notify_all()

    def _damaged(self, uid: str, damage: Damage[Entry]) -> Kept[Entry] | None:
        """Put the file aside; what is known of the claim stays, and so does what cannot be put aside."""
        if damage.before is not None:
            return Kept(damage.before, damage.reason)
        aside = self._folder / _ASIDE
        target = aside / f"{uid}-{os.urandom(4).hex()}"
        try:
            aside.mkdir(mode=0o700, exist_ok=True)
            before = sorted(aside.iterdir(), key=lambda file: file.lstat().st_ctime_ns)
            for oldest in filter(Path.is_file, before[:-_MOST_ASIDE]):
                oldest.unlink()
            damage.path.rename(target)
        except OSError as error:
            return Kept(None, f"{damage.reason}, and it cannot be put aside: {error.strerror}")
        self._aside.append(SetAside(uid, target, damage.reason))
        return None


def uid_of_entry(name: str) -> str | None:
    """The claim whose entry a file of this name in the journal's folder is; None for other files."""
    uid = name.removesuffix(_SUFFIX)
    return uid if uid != name and not name.startswith(TEMPORARY_PREFIX) and is_safe_uid(uid) else None


def _read(uid: str, data: bytes) -> Entry:
    try:
        entry = decode(data)
    except MalformedEntry as error:
        raise ValueError(str(error)) from error
    if entry.uid != uid:
        raise ValueError(f"it belongs to claim {entry.uid}")
    return entry


_FILES: RecordFiles[str, Entry] = RecordFiles(
    uid_of_entry,
    lambda uid: f"{uid}{_SUFFIX}",
    _read,
    encode,
    lambda entry: (_HOLDS, *entry.places) if entry.holds else (),
)
