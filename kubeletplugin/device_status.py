"""Says what the status of a claim has to tell of its partitions: no slice has the UUIDs of those made for it.

The form is that of ``AllocatedDeviceStatus`` (resource.k8s.io/v1), one for each device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from driver.names import DRIVER_NAME, parse_device_name
from kubeletplugin.entry import Entry, HeldDevice

Object = dict[str, Any]

_READY = {
    "type": "Ready",
    "status": "True",
    "reason": "PartitionMade",
    "message": "The partition exists.",
}


@dataclass(frozen=True, slots=True)
class MadeDevice:
    """A device of a claim that is a partition made on request.

    ``uuid`` is the partition's (``MIG-…``), ``parent_uuid`` its GPU's, ``profile`` as NVIDIA writes it.
    """

    pool: str
    device: str
    share_id: str | None
    uuid: str
    parent_uuid: str
    profile: str

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from the other devices of a claim, as in the API."""
        return DRIVER_NAME, self.pool, self.device, self.share_id or ""

    def status(self, before: Mapping[str, Any], now: str) -> Object:
        """Its entry in ``status.devices``; the time of its condition is that of ``before``, if it had it."""
        since = next((one["lastTransitionTime"] for one in _conditions(before) if _is_ready(one)), now)
        return {
            "driver": DRIVER_NAME,
            "pool": self.pool,
            "device": self.device,
            **({"shareID": self.share_id} if self.share_id else {}),
            "conditions": [{**_READY, "lastTransitionTime": since}],
            "data": {"uuid": self.uuid, "parentUUID": self.parent_uuid, "profile": self.profile},
        }


@dataclass(frozen=True, slots=True)
class CutClaim:
    """A prepared claim with at least one partition that was made on request.

    ``prepared_ns`` tells one prepare of the claim from the next: in between it may have lost its
    allocation, and its status with that, and been given the same devices again.
    """

    uid: str
    namespace: str
    name: str
    prepared_ns: int
    devices: tuple[MadeDevice, ...]


def cut_claims(entries: Iterable[Entry], boot_id: str) -> Iterator[CutClaim]:
    """The claims of journal entries whose status has something to tell.

    A device with admin access to somebody else's partition counts as well. Claims of an earlier boot
    have no partitions any more, and of a rebuilt entry nobody knows the name.
    """
    for entry in entries:
        if entry.state != "prepared" or entry.boot_id != boot_id or entry.rebuilt:
            continue
        devices = tuple(made for held in entry.devices if (made := _made(held)) is not None)
        if devices:
            yield CutClaim(entry.uid, entry.namespace, entry.name, entry.changed_ns, devices)


def statuses_to_apply(claim: CutClaim, stored: Mapping[str, Any], now: str) -> list[Object]:
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


def _made(held: HeldDevice) -> MadeDevice | None:
    name, record = parse_device_name(held.device), held.partition
    if name is None or name.static or record is None or not record.uuid:
        return None
    return MadeDevice(held.pool, held.device, held.share_id, record.uuid, held.uuid, record.profile)


def _tells(there: Mapping[str, Any], entry: Object) -> bool:
    """Whether the entry that is there says the same, besides what others may say in it."""
    return there.get("data") == entry["data"] and entry["conditions"][0] in _conditions(there)


def _conditions(entry: Mapping[str, Any]) -> list[Object]:
    return entry.get("conditions") or []


def _is_ready(condition: Object) -> bool:
    return all(condition.get(key) == value for key, value in _READY.items())


def _key(holder: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(holder.get(name) or "" for name in ("driver", "pool", "device", "shareID"))
