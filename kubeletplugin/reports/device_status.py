"""Says what the status of a claim has to tell of what was made for it and of shares, which no slice tells.

The form is that of ``AllocatedDeviceStatus`` (resource.k8s.io/v1), one for each device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from driver.devices.names import DRIVER_NAME
from kubeletplugin.journal.entry import Entry, HeldDevice, MemoryRecord
from kubeletplugin.journal.identity import Era
from kubeletplugin.kinds.kind import HeldKind, HeldKinds

Object = dict[str, Any]

_SHARE = ("ShareReady", "The share can be used.")

NOT_HELD = "MemoryLimitNotHeld"
"""The reason of a condition Ready that is False: the NVIDIA driver does not hold the claim to its memory."""

USED = "memoryUsedBytes"
"""What the claim's containers use, where a flag asks for it."""

_MUCH_PERCENT = 5


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What there is to tell of a device's memory now.

    ``fault`` says why its limit is not held, empty where it is; ``used_bytes`` is None where it is not to be
    told.
    """

    fault: str = ""
    used_bytes: int | None = None


MemoryTold = Mapping[tuple[str, str], DeviceMemory]
"""By claim UID and CDI device."""

_WELL = DeviceMemory()


@dataclass(frozen=True, slots=True)
class ToldDevice:
    """A device of a claim of which there is something to tell: a partition made on request, or a share.

    ``condition`` is the reason and the message of its condition Ready, and ``ready`` its status. ``data`` is
    for people and tools: ``uuid`` is what CUDA knows the device by (``MIG-…`` for a partition).
    """

    pool: str
    device: str
    share_id: str | None
    condition: tuple[str, str]
    data: Mapping[str, Any]
    ready: bool = True

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from the other devices of a claim, as in the API."""
        return DRIVER_NAME, self.pool, self.device, self.share_id or ""

    def status(self, before: Mapping[str, Any], now: str) -> Object:
        """Its entry in ``status.devices``.

        The time of its condition is that of ``before`` if that had the same status. Memory that is used stays
        as ``before`` had it, unless it is much other.
        """
        ready = {
            "type": "Ready",
            "status": "True" if self.ready else "False",
            "reason": self.condition[0],
            "message": self.condition[1],
        }
        same = (
            one
            for one in _conditions(before)
            if one.get("type") == "Ready" and one.get("status") == ready["status"]
        )
        since = next((one["lastTransitionTime"] for one in same), now)
        data, told = dict(self.data), before.get("data")
        used = told.get(USED) if isinstance(told, Mapping) else None
        if USED in data and isinstance(used, int) and not changed_much(used, data[USED]):
            data[USED] = used
        return {
            "driver": DRIVER_NAME,
            "pool": self.pool,
            "device": self.device,
            **({"shareID": self.share_id} if self.share_id else {}),
            "conditions": [{**ready, "lastTransitionTime": since}],
            "data": data,
        }


@dataclass(frozen=True, slots=True)
class ToldClaim:
    """A prepared claim with at least one device of which there is something to tell.

    ``prepared_ns`` tells one prepare of the claim from the next: in between it may have lost its
    allocation, and its status with that, and been given the same devices again.
    """

    uid: str
    namespace: str
    name: str
    prepared_ns: int
    devices: tuple[ToldDevice, ...]


def told_claims(
    entries: Iterable[Entry], era: Era, kinds: HeldKinds, memory: MemoryTold | None = None
) -> Iterator[ToldClaim]:
    """The claims of journal entries whose status has something to tell; ``memory`` is what is known of that.

    A device with admin access to somebody else's partition counts as well. Claims of an earlier boot
    have no partitions any more, and of a rebuilt entry nobody knows the name.
    """
    for entry in entries:
        if entry.state != "prepared" or entry.rebuilt:
            continue
        devices = tuple(
            told
            for held in entry.devices
            if kinds.is_live(entry, held, era)
            and (told := _told(held, kinds.of(held), (memory or {}).get((entry.uid, held.cdi_device), _WELL)))
            is not None
        )
        if devices:
            yield ToldClaim(entry.uid, entry.namespace, entry.name, entry.changed_ns, devices)


def statuses_to_apply(claim: ToldClaim, stored: Mapping[str, Any], now: str) -> list[Object]:
    """Our entries for ``status.devices`` of the API object; none when it tells them already.

    It is all of them or none: what an apply leaves out, and an earlier one had, is removed. Of devices
    that are not allocated any more the API takes no status. ``now`` is a time in RFC 3339.
    """
    status = stored.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    allocated = {_key(result) for result in results}
    there = {_key(entry): entry for entry in status.get("devices") or ()}
    devices = [device for device in claim.devices if device.key in allocated]
    entries = [device.status(there.get(device.key, {}), now) for device in devices]
    missing = any(
        not _tells(there.get(device.key, {}), entry) for device, entry in zip(devices, entries, strict=True)
    )
    return entries if missing else []


def changed_much(before: int, now: int) -> bool:
    """Whether an amount is other than it was told by more than five percent of that."""
    return abs(now - before) * 100 > before * _MUCH_PERCENT


def _told(held: HeldDevice, kind: HeldKind, memory: DeviceMemory) -> ToldDevice | None:
    made = kind.status(held)
    share = {} if held.share is None else held.share.told
    limits = {} if held.memory is None else _limits(held.memory, memory)
    if not (made or share or limits):
        return None
    uuid = kind.cuda_uuid(held)
    data = {**({"uuid": uuid} if uuid else {}), **made, **share, **limits}
    condition = (NOT_HELD, memory.fault) if memory.fault else _SHARE if share or limits else kind.condition
    return ToldDevice(held.pool, held.device, held.share_id, condition, data, ready=not memory.fault)


def _limits(record: MemoryRecord, memory: DeviceMemory) -> dict[str, Any]:
    return record.told if memory.used_bytes is None else {**record.told, USED: memory.used_bytes}


def _tells(there: Mapping[str, Any], entry: Object) -> bool:
    """Whether the entry that is there says the same, besides what others may say in it."""
    return there.get("data") == entry["data"] and entry["conditions"][0] in _conditions(there)


def _conditions(entry: Mapping[str, Any]) -> list[Object]:
    return entry.get("conditions") or []


def _key(holder: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(holder.get(name) or "" for name in ("driver", "pool", "device", "shareID"))
