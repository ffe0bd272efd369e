"""Follows whether the memory limits of claims are enforced, and what claims use, for status and events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from driver.process.log import get_logger
from driver.process.metrics.table import Reading
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, standing
from kubeletplugin.kubelet.wire.containers import ContainerMemory
from kubeletplugin.reports.device_status import DeviceMemory, changed_much

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


Containers = tuple[ContainerMemory, ...]

MEMORY_SERIES = tuple(
    f"gpu_dra_{holder}_memory_{amount}_bytes"
    for holder in ("claim", "container")
    for amount in ("limit", "used")
)


def memory_uses(
    entries: Iterable[Entry], generation: str, read_containers: Callable[[], Containers | None]
) -> Iterator[Reading]:
    """The memory limits of prepared claims, and how much is used.

    ``read_containers()`` returns the memory of live containers, None while the use is unknown; it is called
    only if a claim has limits. Containers of other claims are left out, since their claims are being
    unprepared.
    """
    limited = list(_limited(entries, generation))
    if not limited:
        return
    containers = read_containers()
    of_device: defaultdict[tuple[str, str], list[ContainerMemory]] = defaultdict(list)
    # A container is found by the claim's UID and the CDI device, which its hook was called with.
    for one in containers or ():
        of_device[one.claim_uid, one.cdi_device].append(one)
    for entry, held in limited:
        members, labels = of_device[entry.uid, held.cdi_device], held_labels(entry, held)
        used_bytes = None if containers is None else used_together(members)
        yield from _readings("claim", labels, held.memory_limit_bytes or 0, used_bytes)
        yield from _of_containers(labels, members)


def held_labels(entry: Entry, held: HeldDevice) -> dict[str, str]:
    """The labels of a device: its claim, its name, and its GPU."""
    return {
        "claim_namespace": entry.namespace,
        "claim": entry.name,
        "device": held.device,
        "share_id": held.share_id or "",
        "uuid": held.uuid,
        "pci_bus_id": held.pci,
    }


def used_together(containers: Iterable[ContainerMemory]) -> int | None:
    """The memory that containers use together; None if one amount is unknown."""
    amounts = [one.used_bytes for one in containers]
    # A sum without one of its parts would look like a drop in use.
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _limited(entries: Iterable[Entry], generation: str) -> Iterator[tuple[Entry, HeldDevice]]:
    """The devices with limits, of prepared claims."""
    for entry in entries:
        if standing(entry, generation).is_prepared:
            for held in entry.devices:
                if held.memory_limit_bytes is not None:
                    yield entry, held


def _readings(
    holder: str, labels: Mapping[str, str], limit_bytes: int, used_bytes: int | None
) -> Iterator[Reading]:
    yield Reading(f"gpu_dra_{holder}_memory_limit_bytes", labels, limit_bytes)
    if used_bytes is not None:
        yield Reading(f"gpu_dra_{holder}_memory_used_bytes", labels, used_bytes)


def _of_containers(labels: Mapping[str, str], members: Iterable[ContainerMemory]) -> Iterator[Reading]:
    """The readings of containers, added up by name: a restarting container may exist twice for a moment."""
    named: defaultdict[tuple[str, str], list[ContainerMemory]] = defaultdict(list)
    for one in members:
        named[one.pod, one.container].append(one)
    for (pod, container), same in sorted(named.items()):
        whose = {**labels, "claim_pod": pod, "claim_container": container}
        yield from _readings("container", whose, sum(one.hard_bytes for one in same), used_together(same))
