"""Makes the entries of ``status.devices`` of a claim: what its devices are, and whether they work.

Their form is ``AllocatedDeviceStatus`` (resource.k8s.io/v1), one for each device.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from driver.devices.names import DRIVER_NAME
from driver.health.verdict import Health
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.devices.kinds.kind import NodeKinds
from kubeletplugin.kubelet.wire.health_board import Devices

_Key = tuple[str, str]
"""A device by its pool and its name in the claim's allocation."""

Object = dict[str, Any]

_SHARE = ("ShareReady", "The share can be used.")

NOT_HELD = "MemoryLimitNotHeld"
"""The reason of a condition Ready that is False: the NVIDIA driver does not enforce the memory limit."""

LIMIT = "memoryLimitBytes"
"""The memory that the NVIDIA driver lets the claim's containers have together."""

USED = "memoryUsedBytes"
"""The memory that the claim's containers use, if a flag asks for it."""

_MUCH_PERCENT = 5
_MAX_DATA_BYTES = 10 * 1024
"""AllocatedDeviceStatusDataMaxLength of resource.k8s.io."""


Healths = Mapping[_Key, Health]
"""By device; a missing device was not checked yet."""


class HealthTracker:
    """Remembers the health of the devices, as the health stream sends it, and calls back when it changes.

    An unknown state counts only if two checks in a row find it, so that a driver that is busy for a moment
    does not change the status of claims.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._known: Healths | None = None
        self._doubted: frozenset[_Key] = frozenset()

    def known(self) -> Healths | None:
        """The health of the devices, None before the first check."""
        return self._known

    def update(self, devices: Devices) -> None:
        """Take over a check of all devices."""
        # Unknown in this check; a device that was unknown in the last one too is taken as such.
        doubted = frozenset((one.pool, one.device) for one in devices if one.health.word == "Unknown")
        before, sure = self._known, doubted & self._doubted
        known = {(one.pool, one.device): one.health for one in devices}
        # Keep the last certain state for one more check.
        known |= {key: before[key] for key in doubted - sure if before is not None and key in before}
        self._known, self._doubted = known, doubted
        if known != before:
            self._changed()


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What the status says about a device's memory."""

    # Why its limit is not enforced, empty if it is.
    fault: str = ""
    # None if it is not shown.
    used_bytes: int | None = None


DeviceMemories = Mapping[tuple[str, str], DeviceMemory]
"""By claim UID and CDI device."""

_WELL = DeviceMemory()


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known besides the journal, at one moment."""

    # The kinds, which look at the devices.
    kinds: NodeKinds
    memory: DeviceMemories = field(default_factory=dict)
    # None before the first check of the devices.
    healths: Healths | None = None
    # The number of the fabric partition that is active for a claim, None for none; raises DriverError.
    fabric_partition: Callable[[Entry], int | None] = lambda _entry: None


@dataclass(frozen=True, slots=True)
class Ready:
    """The condition Ready of a device."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str

    def written(self, since: str) -> Object:
        """The condition in the form of the API."""
        return {
            "type": "Ready",
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "lastTransitionTime": since,
        }


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """A device of a claim."""

    pool: str
    device: str
    share_id: str | None
    ready: Ready
    # For people and tools; Kubernetes does not read it.
    data: Mapping[str, Any]
    # False if the device was not checked since it was prepared, or since the plugin started. Its condition
    # in the API then stays.
    is_checked: bool = field(default=True, compare=False)

    @property
    def key(self) -> tuple[str, ...]:
        """What distinguishes it from the other devices of a claim in the API."""
        return DRIVER_NAME, self.pool, self.device, self.share_id or ""

    def status(self, before: Mapping[str, Any], now: str) -> Object:
        """Its entry in ``status.devices``; ``before`` is the entry that the claim has.

        The condition keeps the time of ``before`` if its status is the same. Used memory stays as in
        ``before``, unless it differs much.
        """
        data, stored = dict(self.data), before.get("data")
        used = stored.get(USED) if isinstance(stored, Mapping) else None
        if USED in data and isinstance(used, int) and not changed_much(used, data[USED]):
            data[USED] = used
        return {
            "driver": DRIVER_NAME,
            "pool": self.pool,
            "device": self.device,
            **({"shareID": self.share_id} if self.share_id else {}),
            "conditions": [self._condition(ready_of(before), now)],
            "data": data,
        }

    def _condition(self, before: Object | None, now: str) -> Object:
        if before is None:
            return self.ready.written(now)
        if not self.is_checked and before.get("reason") != NOT_HELD:
            return before
        return self.ready.written(
            before["lastTransitionTime"] if before["status"] == self.ready.status else now
        )


@dataclass(frozen=True, slots=True)
class ClaimStatus:
    """A prepared claim, with its devices."""

    uid: str
    namespace: str
    name: str
    # Distinguishes two prepares of the claim. In between it may have lost its allocation, and so its status,
    # and may have got the same devices again.
    prepared_ns: int
    devices: tuple[DeviceStatus, ...]


def claim_statuses(entries: Iterable[Entry], observed: Observed) -> Iterator[ClaimStatus]:
    """The claims of journal entries that get a status, devices with admin access included.

    Left out are entries without a name, claims that another driver prepared, and kinds of a newer version.
    """
    for entry in entries:
        if entry.state != "prepared" or not entry.is_named:
            continue
        devices: dict[tuple[str, ...], DeviceStatus] = {}
        for held in entry.devices:
            if held.published_as or held.offered is None:
                continue
            # A device of several requests has one entry in the API.
            status = _status(entry, held, observed)
            devices.setdefault(status.key, status)
        if devices:
            yield ClaimStatus(
                entry.uid, entry.namespace, entry.name, entry.changed_ns, tuple(devices.values())
            )


def statuses_to_apply(claim: ClaimStatus, stored: Mapping[str, Any], now: str) -> list[Object]:
    """Our entries for ``status.devices`` of the API object; empty if it has them already.

    ``now`` is a time in RFC 3339.
    """
    # All entries or none: a server-side apply removes those of an earlier apply that it leaves out. The API
    # server refuses the status of a device that is no longer allocated.
    status = stored.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    allocated = {key_of(result) for result in results}
    there = {key_of(entry): entry for entry in status.get("devices") or ()}
    devices = [device for device in claim.devices if device.key in allocated]
    entries = [device.status(there.get(device.key, {}), now) for device in devices]
    missing = any(
        not _has_same(there.get(device.key, {}), entry)
        for device, entry in zip(devices, entries, strict=True)
    )
    return entries if missing else []


def changed_much(before: int, now: int) -> bool:
    """Whether an amount differs by more than five percent from the one in the status."""
    return abs(now - before) * 100 > before * _MUCH_PERCENT


def ready_of(entry: Mapping[str, Any]) -> Object | None:
    """The condition Ready of an entry of ``status.devices``, None if it has none."""
    return next((one for one in _conditions(entry) if one.get("type") == "Ready"), None)


def key_of(holder: Mapping[str, Any]) -> tuple[str, ...]:
    """What distinguishes an entry of ``status.devices``, or a result of an allocation, within its claim."""
    return tuple(holder.get(name) or "" for name in ("driver", "pool", "device", "shareID"))


def _status(entry: Entry, held: HeldDevice, now: Observed) -> DeviceStatus:
    kind = now.kinds.of(held)
    memory = now.memory.get((entry.uid, held.cdi_device), _WELL)
    share = {} if held.share is None else held.share.attributes
    limits = {} if held.memory_limit_bytes is None else {LIMIT: held.memory_limit_bytes}
    if limits and memory.used_bytes is not None:
        limits[USED] = memory.used_bytes
    uuid, fabric = kind.cuda_uuid(held), None if held.admin_access else now.fabric_partition(entry)
    data = {
        **({"uuid": uuid} if uuid else {}),
        **({"pciBusID": held.pci} if held.pci else {}),
        **kind.status(held),
        **share,
        **limits,
        **({} if fabric is None else {"fabricPartition": fabric}),
    }
    health = (now.healths or {}).get((held.pool, held.device))
    well = _SHARE if share or limits else kind.condition
    return DeviceStatus(
        held.pool,
        held.device,
        held.share_id,
        _ready(health or Health("Healthy"), memory.fault, well),
        _bounded(data),
        health is not None or bool(memory.fault),
    )


def _ready(health: Health, fault: str, well: tuple[str, str]) -> Ready:
    """The condition; a fault of the memory limit comes before an unknown state."""
    if fault and health.word != "Unhealthy":
        return Ready("False", NOT_HELD, fault)
    if health.word == "Healthy":
        return Ready("True", *well)
    status: Literal["False", "Unknown"] = "False" if health.word == "Unhealthy" else "Unknown"
    return Ready(status, health.reason or health.word, health.message)


def _bounded(data: Mapping[str, Any]) -> dict[str, Any]:
    """As many of the first values as the API takes."""
    # The API server would refuse the whole status of the claim for one value too many.
    kept = dict(data)
    while len(json.dumps(kept, separators=(",", ":")).encode()) > _MAX_DATA_BYTES:
        # Dictionaries keep their order, so the last value goes first.
        kept.popitem()
    return kept


def _has_same(there: Mapping[str, Any], entry: Object) -> bool:
    """Whether the existing entry says the same, apart from conditions that others added."""
    return there.get("data") == entry["data"] and entry["conditions"][0] in _conditions(there)


def _conditions(entry: Mapping[str, Any]) -> list[Object]:
    return entry.get("conditions") or []
