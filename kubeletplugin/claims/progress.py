"""Writes an entry down at each step in which its devices are made or taken back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kubeletplugin.claims.journal.entry import Entry, Record, State
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.devices.kinds.kind import Note


class Progress:
    """One entry on its way; ``entry`` is how it stands now. ``step(name)`` is for tests to follow."""

    def __init__(
        self, journal: Journal, entry: Entry, step: Callable[[str], None], *, is_written: bool
    ) -> None:
        self.entry = entry
        self._journal = journal
        self._step = step
        self._written = entry if is_written else None

    def write(self, step: str, state: State) -> None:
        """Write the entry with this state, unless it stands there so; raises StorageError."""
        entry = replace(self.entry, state=state)
        if entry != self._written:
            self._journal.put(entry)
            self.entry = self._written = entry
            self._step(step)

    def is_now(self, index: int, record: Record) -> None:
        """Remember what is known of a device; it is written with the next step."""
        devices = list(self.entry.devices)
        devices[index] = replace(devices[index], record=record)
        self.entry = replace(self.entry, devices=tuple(devices))

    def noting(self, index: int, state: State) -> Note:
        """What a kind calls at each step with a device: it is written at once, with this state."""

        def note(step: str, record: Record) -> None:
            self.is_now(index, record)
            self.write(step, state)

        return note
