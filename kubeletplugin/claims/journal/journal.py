"""The journal: one file per claim that outlives the process, and in memory which claims hold which GPU.

Only this module reads and writes the folder. A file that cannot be read is moved aside, never deleted, and no
other claim is affected. If it cannot be moved, or if its content was read earlier, the file stays where it
is, and a caller who asks for that claim gets StorageError with the reason.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from driver.errors import StorageError
from driver.process.durable import TEMPORARY_PREFIX
from kubeletplugin.claims.journal.entry import (
    Entry,
    HeldDevice,
    MalformedEntry,
    Record,
    Standing,
    State,
    decode,
    encode,
    is_live,
    standing,
)
from kubeletplugin.claims.journal.record_folder import Damage, Kept, RecordFiles, RecordFolder
from kubeletplugin.kubelet.wire.names import is_safe_uid

FOLDER = "journal"
"""The journal's folder, below that of the boot."""

_SUFFIX = ".json"
_ASIDE = "unreadable"
# Damaged files that are kept for people, beside the newest one. A sick disk would make more of them each day.
_MOST_ASIDE = 100

# The key of the index that has all claims that hold devices. No GPU and no device has an empty name.
_HOLDS = ""


@dataclass(frozen=True, slots=True)
class SetAside:
    """A journal file that could not be read: its claim, its path now, and the reason."""

    uid: str
    path: Path
    reason: str


class Journal:
    """Entries by claim UID. Callers hold the claim's lock (see ``locks``) around read and write.

    ``changed_elsewhere()`` returns whether another instance may have written since the last call.
    ``generation()`` differs between the loads of the NVIDIA driver, and is empty if it is not known.
    ``timed(seconds)`` gets how long each write took.
    """

    def __init__(
        self,
        folder: Path,
        changed_elsewhere: Callable[[], bool],
        generation: Callable[[], str] = lambda: "",
        timed: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self._folder = folder
        self.generation = generation
        # Called after a claim's state has changed here. It must not block.
        self.on_change: Callable[[], None] = lambda: None
        self._timed = timed
        self._files = RecordFolder(folder, _FILES, self._damaged, changed_elsewhere)
        self._released = threading.Condition()
        self._aside: list[SetAside] = []

    def get(self, uid: str) -> Entry | None:
        """The entry of a claim as it is on disk, None if it has none.

        Raises StorageError if its file cannot be read.
        """
        known = self._files.get(uid)
        if known is not None and known.wrong:
            raise StorageError(
                f"cannot read the journal file {self._files.path(uid)}: {known.wrong}",
                "check the disk; other claims are not affected",
            )
        return known.record if known else None

    def standing(self, entry: Entry | None) -> Standing:
        """What a claim's entry means now."""
        return standing(entry, self.generation())

    def is_live(self, entry: Entry, held: HeldDevice) -> bool:
        """Whether the entry's record of this one of its devices is still true in this load of the driver."""
        return is_live(entry, held, self.generation())

    def unreadable(self) -> frozenset[str]:
        """The claims whose file can neither be read nor moved aside."""
        return frozenset(uid for uid, known in self._files.all().items() if known.record is None)

    def entries(self) -> tuple[Entry, ...]:
        """All entries, tombstones included, sorted by UID."""
        return self._files.records()

    def held(self) -> tuple[Entry, ...]:
        """The entries of the claims that hold devices, sorted by UID."""
        # Loops use this and not ``entries``: tombstones stay for ten minutes, and a node of short pods has
        # thousands.
        return self._files.at([_HOLDS])

    def holders(self, pci: str) -> tuple[Entry, ...]:
        """The entries of the claims that hold a device of the GPU at this PCI address."""
        return self._files.at([pci])

    def holders_of(self, device: HeldDevice) -> tuple[Entry, ...]:
        """The entries of the claims that hold something on the device's GPUs, or the device if it has no GPU.

        Callers hold the locks of those GPUs, and have called another method since they got them.
        """
        # The folder need not be read again: no instance changes these entries without the locks.
        return self._files.at_in_memory(device.places)

    def held_count(self) -> int:
        """How many claims hold devices."""
        return self._files.count_at(_HOLDS)

    def put(self, entry: Entry) -> None:
        """Write an entry. Raises StorageError; the entry before is then kept."""
        started = time.perf_counter()
        before = self._files.put(entry.uid, entry)
        seconds = time.perf_counter() - started
        if not entry.holds:
            self._wake_waiting()
        if before is None or before.state != entry.state:
            self.on_change()
        self._timed(seconds)

    def forget(self, uid: str) -> None:
        """Remove an entry. Raises StorageError; then nothing has changed."""
        self._files.forget(uid)
        self._wake_waiting()
        self.on_change()

    def wait_for_release(self, timeout_seconds: float) -> None:
        """Return when some claim of this instance releases its devices, or after the time."""
        with self._released:
            self._released.wait(timeout_seconds)

    def take_set_aside(self) -> tuple[SetAside, ...]:
        """The files that were moved aside since the last call."""
        self._files.all()
        return tuple(self._aside.pop(0) for _ in range(len(self._aside)))

    def _wake_waiting(self) -> None:
        with self._released:
            self._released.notify_all()

    def _damaged(self, uid: str, damage: Damage[Entry]) -> Kept[Entry] | None:
        """Move a damaged file aside. Returns what to remember of its claim, None if the file is moved."""
        # The content is still known from an earlier read, so the claim keeps its entry, and the file stays.
        if damage.before is not None:
            return Kept(damage.before, damage.reason)
        aside = self._folder / _ASIDE
        # Named at random, since the same claim may have another damaged file later.
        target = aside / f"{uid}-{os.urandom(4).hex()}"
        try:
            aside.mkdir(mode=0o700, exist_ok=True)
            # By the time of the last change of the inode, which a rename sets on the usual file systems: the
            # oldest was moved here first.
            before = sorted(aside.iterdir(), key=lambda file: file.lstat().st_ctime_ns)
            for oldest in filter(Path.is_file, before[:-_MOST_ASIDE]):
                oldest.unlink()
            damage.path.rename(target)
        except OSError as error:
            return Kept(None, f"{damage.reason}, and it cannot be put aside: {error.strerror}")
        self._aside.append(SetAside(uid, target, damage.reason))
        return None


class Progress:
    """The journal entry of a claim whose devices are being made or taken back.

    ``entry`` is the newest version. Tests follow the work by ``step(name)``.
    """

    def __init__(
        self, journal: Journal, entry: Entry, step: Callable[[str], None], *, is_written: bool
    ) -> None:
        self.entry = entry
        self._journal = journal
        self._step = step
        self._written = entry if is_written else None

    def write(self, step: str, state: State) -> None:
        """Write the entry with this state, unless the journal has just that already. Raises StorageError."""
        entry = replace(self.entry, state=state)
        if entry != self._written:
            self._journal.put(entry)
            self.entry = self._written = entry
            self._step(step)

    def update(self, index: int, record: Record) -> None:
        """Set the record of a device. It is written with the next step."""
        devices = list(self.entry.devices)
        devices[index] = replace(devices[index], record=record)
        self.entry = replace(self.entry, devices=tuple(devices))

    def note_for(self, index: int, state: State) -> Callable[[str, Record], None]:
        """The function that a kind calls at each step with this device. It writes the entry at once."""

        def note(step: str, record: Record) -> None:
            self.update(index, record)
            self.write(step, state)

        return note


def uid_of_entry(name: str) -> str | None:
    """The claim that a file of this name in the journal's folder belongs to; None for other files."""
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
