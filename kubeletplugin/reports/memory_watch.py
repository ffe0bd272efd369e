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
    """Who hears of memory: ``lost(claim, words)`` and ``held(claim, words)`` of one that is not held to its
    limit, or is again; ``changed()`` that the status of claims has something new to tell.
    """

    lost: Callable[[Entry, str], None]
    held: Callable[[Entry, str], None]
    changed: Callable[[], None]


class MemoryWatch:
    """Remembers what was told, so that each change is told once. Both passes may run at the same time."""

    def __init__(
        self,
        entries: Callable[[], Iterable[Entry]],
        faults: Callable[[], Mapping[Key, str]],
        containers: Callable[[], tuple[ContainerMemory, ...] | None],
        listeners: MemoryListeners,
    ) -> None:
        """``entries()`` are those of the journal; it raises StorageError.

        ``faults()`` are the devices whose limits are not held, with the reason in words. ``containers()`` are
        what live containers have and use, None where nobody could tell in time.
        """
        self._entries = entries
        self._faults_now = faults
        self._containers = containers
        self._listeners = listeners
        self._faults: Mapping[Key, str] = {}
        self._used: Mapping[Key, int] = {}
        self._was_late = False

    def known(self) -> dict[Key, DeviceMemory]:
        """What the status of claims says, by device; nothing for devices that are well and not shown."""
        faults, used = self._faults, self._used
        return {key: DeviceMemory(faults.get(key, ""), used.get(key)) for key in faults.keys() | used.keys()}

    def see_faults(self) -> None:
        """Report each limit that is no longer enforced, or is again; raises StorageError."""
        before, now = self._faults, dict(self._faults_now())
        if now == before:
            return
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

        Unknown amounts, and claims without a limit, are not reported. One late reading changes nothing: a GPU
        that begins to hang delays it for all.
        """
        containers = self._containers()
        was_late, self._was_late = self._was_late, containers is None
        if containers is None and not was_late:
            return
        of_device: defaultdict[Key, list[ContainerMemory]] = defaultdict(list)
        for one in containers or ():
            of_device[one.claim_uid, one.cdi_device].append(one)
        told: dict[Key, int] = {}
        for key, entry in self._prepared().items() if containers is not None else ():
            limited = any(one.cdi_device == key[1] and one.memory is not None for one in entry.devices)
            used = used_together(of_device[key]) if limited else None
            if used is not None:
                before = self._used.get(key)
                told[key] = used if before is None or changed_much(before, used) else before
        if told != self._used:
            self._used = told
            self._listeners.changed()

    def _prepared(self) -> dict[Key, Entry]:
        return {
            (entry.uid, held.cdi_device): entry
            for entry in self._entries()
            if entry.state == "prepared" and entry.is_named
            for held in entry.devices
        }
