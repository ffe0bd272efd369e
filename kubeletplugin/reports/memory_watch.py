"""Follows whether the memory limits of claims are enforced, and what claims use, for status and events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.kubelet.wire.containers import ContainerMemory
from kubeletplugin.reports.device_status import DeviceMemory, changed_much
from kubeletplugin.reports.memory_uses import used_together

Key = tuple[str, str]
"""A device of a claim: the claim's UID, and the device's CDI name."""

_log = get_logger("memory limits")


@dataclass(frozen=True, slots=True)
class MemoryListeners:
    """Callbacks about memory limits."""

    # A limit of the claim is no longer enforced; the text has the device and the reason.
    lost: Callable[[Entry, str], None]
    # A limit of the claim is enforced again.
    held: Callable[[Entry, str], None]
    # The status of claims has to be written.
    changed: Callable[[], None]


class MemoryWatch:
    """Remembers what was reported, so that each change is reported once.

    ``see_faults`` and ``see_use`` may run at the same time.
    """

    def __init__(
        self,
        entries: Callable[[], Iterable[Entry]],
        faults: Callable[[], Mapping[Key, str]],
        containers: Callable[[], tuple[ContainerMemory, ...] | None],
        listeners: MemoryListeners,
    ) -> None:
        """``entries()`` returns those of the journal; it raises StorageError.

        ``faults()`` returns the devices whose limits are not enforced, with the reason. ``containers()``
        returns the memory of live containers, None if it could not be read in time.
        """
        self._entries = entries
        self._faults_now = faults
        self._containers = containers
        self._listeners = listeners
        self._faults: Mapping[Key, str] = {}
        self._used: Mapping[Key, int] = {}
        self._was_late = False

    def known(self) -> dict[Key, DeviceMemory]:
        """What the status of claims shows, by device; without those that have neither a fault nor a use."""
        faults, used = self._faults, self._used
        return {key: DeviceMemory(faults.get(key, ""), used.get(key)) for key in faults.keys() | used.keys()}

    def see_faults(self) -> None:
        """Report each limit that is no longer enforced, or is again; raises StorageError."""
        before, now = self._faults, dict(self._faults_now())
        if now == before:
            return
        # Read before the faults are taken over: if the journal cannot be read, the next pass sees them again.
        prepared = self._prepared()
        self._faults = now
        for key in sorted(before.keys() | now.keys()):
            entry, fault = prepared.get(key), now.get(key, "")
            if entry is None or fault == before.get(key, ""):
                continue
            device = next(one.device for one in entry.devices if one.cdi_device == key[1])
            if fault:
                _log.error("memory limit is not held", claim=entry.owner, device=device, reason=fault)
                self._listeners.lost(entry, f"{device}: {fault}")
            else:
                _log.info("memory limit is held again", claim=entry.owner, device=device)
                self._listeners.held(entry, f"{device}: its memory limit is held again")
        self._listeners.changed()

    def see_use(self) -> None:
        """Report used memory that differs much from what was reported; raises StorageError.

        Unknown amounts, and claims without a limit, are not reported.
        """
        containers = self._containers()
        # A single late reading changes nothing: one GPU that begins to hang delays those of all others.
        was_late, self._was_late = self._was_late, containers is None
        if containers is None and not was_late:
            return
        of_device: defaultdict[Key, list[ContainerMemory]] = defaultdict(list)
        for one in containers or ():
            of_device[one.claim_uid, one.cdi_device].append(one)
        reported: dict[Key, int] = {}
        for key, entry in self._prepared().items() if containers is not None else ():
            devices = (held for held in entry.devices if held.cdi_device == key[1])
            limited = any(held.memory_limit_bytes is not None for held in devices)
            used = used_together(of_device[key]) if limited else None
            if used is not None:
                before = self._used.get(key)
                reported[key] = used if before is None or changed_much(before, used) else before
        if reported != self._used:
            self._used = reported
            self._listeners.changed()

    def _prepared(self) -> dict[Key, Entry]:
        return {
            (entry.uid, held.cdi_device): entry
            for entry in self._entries()
            if entry.state == "prepared" and entry.is_named
            for held in entry.devices
        }
