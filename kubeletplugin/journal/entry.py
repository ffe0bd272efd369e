"""What the journal remembers of one claim, and how it is written: versioned JSON with a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from driver.devices.sharing import Strategy
from driver.nvml.mig import Placement
from kubeletplugin.wire.planned import PlannedDevice

SCHEMA = 1

State = Literal["preparing", "prepared", "releasing", "released"]
_STATES = ("preparing", "prepared", "releasing", "released")


class MalformedEntry(Exception):
    """The bytes are no journal entry; the message says what is wrong with them."""


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A MIG partition that a claim was given: where it is to lie, and how far its making has come.

    ``start`` and ``size`` are memory slices. ``attempted`` is written before the GPU instance is created,
    when nothing lay at its place: from then on a GPU instance of this profile at exactly this place is the
    claim's, its id known or not. Until then whatever lies there is somebody else's. The ids and the UUID
    (``MIG-…``) follow as each step is done, and mean something only within the boot of the entry.
    ``memory_bytes`` is what the profile has, 0 in entries that were written before it was recorded.
    """

    profile: str
    profile_id: int
    start: int
    size: int
    attempted: bool = False
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    uuid: str = ""
    memory_bytes: int = 0

    @property
    def placement(self) -> Placement:
        """Where it lies."""
        return Placement(self.start, self.size)


@dataclass(frozen=True, slots=True)
class ShareRecord:
    """How a device is shared, and what this claim may use of it.

    ``group`` names what is shared as one: the unshared name of the device, or of the first of several GPUs
    that one claim shares among its own pods by MPS. ``shares`` and ``memory_bytes`` are what the claim was
    given, 0 where that does not measure the device, or where the claim has the device for itself.
    ``interval`` is the time-slice that was asked for, empty where nothing was. Limits of MPS are for each
    process: ``active_thread_percentage``, and ``pinned_memory_mib``, 0 for none.
    """

    group: str
    strategy: Strategy
    shares: int = 0
    memory_bytes: int = 0
    interval: str = ""
    active_thread_percentage: int = 100
    pinned_memory_mib: int = 0
    multi_user: bool = False

    @property
    def is_part(self) -> bool:
        """Whether other claims can have shares beside it; else the claim has the device for itself."""
        return bool(self.shares or self.memory_bytes)


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """One device that a claim holds: the allocation result, and the hardware that it stood for.

    ``pci`` is the address as sysfs writes it. ``uuid`` is empty where it is not known, which is so
    only for an entry that was rebuilt from a CDI spec. It is the GPU's, also of a partition, which
    ``partition`` describes; that is None for a whole GPU and for the partitions of a rebuilt entry.
    ``share`` is None for a device that is not shared, for admin access, and in rebuilt entries.
    """

    request: str
    pool: str
    device: str
    pci: str
    uuid: str
    cdi_device: str
    share_id: str | None = None
    admin_access: bool = False
    partition: PartitionRecord | None = None
    share: ShareRecord | None = None

    @classmethod
    def of(
        cls,
        planned: PlannedDevice,
        uuid: str,
        partition: PartitionRecord | None = None,
        share: ShareRecord | None = None,
    ) -> HeldDevice:
        """The record of a planned device, once the UUID of its GPU is known."""
        allocated = planned.allocated
        return cls(
            allocated.request,
            allocated.pool,
            allocated.device,
            str(planned.pci),
            uuid,
            planned.cdi_device,
            allocated.share_id,
            allocated.admin_access,
            partition,
            share,
        )

    @property
    def cuda_uuid(self) -> str:
        """What CUDA knows the device by: the partition's UUID, or the GPU's."""
        return self.uuid if self.partition is None else self.partition.uuid


@dataclass(frozen=True, slots=True)
class Entry:
    """The state of one claim on this node.

    ``preparing``: the claim holds its devices, the work may be half done. ``prepared``: the CDI spec
    with ``spec_sha256`` was written and answered. ``releasing``: nobody uses the claim any more, but not
    all of its partitions could be destroyed yet. ``released``: a tombstone that stops a late retry.
    ``changed_ns`` is CLOCK_BOOTTIME and means something within ``boot_id`` only. ``rebuilt`` marks an
    entry whose file was lost or unreadable: namespace, name and requests are not known.
    """

    uid: str
    namespace: str
    name: str
    state: State
    boot_id: str
    changed_ns: int
    devices: tuple[HeldDevice, ...] = ()
    spec_sha256: str = ""
    rebuilt: bool = False

    @property
    def holds(self) -> bool:
        """Whether the claim holds its devices."""
        return self.state != "released"

    @property
    def shares(self) -> bool:
        """Whether any of its devices is shared."""
        return any(device.share is not None for device in self.devices)


def encode(entry: Entry) -> bytes:
    """The file of an entry."""
    plain = {**_plain(entry), "devices": [_device(device) for device in entry.devices]}
    body = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{{"schema":{SCHEMA},"sha256":"{digest}","entry":{body}}}\n'.encode()


def decode(data: bytes) -> Entry:
    """Read an entry, also one with fields that a newer version added; raises MalformedEntry."""
    try:
        document = json.loads(data)
        body = document["entry"]
        canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
        if hashlib.sha256(canonical.encode()).hexdigest() != document["sha256"]:
            raise MalformedEntry("the checksum does not fit the content")
        devices = tuple(_read_device(device) for device in body["devices"])
        entry = Entry(**{**_known(Entry, body), "devices": devices})
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEntry(f"not a journal entry: {error!r}") from error
    if entry.state not in _STATES:
        raise MalformedEntry(f"unknown state {entry.state!r}")
    return entry


_Record = Entry | HeldDevice | PartitionRecord | ShareRecord

_FIELDS = {
    kind: tuple(field.name for field in fields(kind))
    for kind in (Entry, HeldDevice, PartitionRecord, ShareRecord)
}


def _plain(value: _Record) -> dict[str, Any]:
    return {name: getattr(value, name) for name in _FIELDS[type(value)]}


def _device(device: HeldDevice) -> dict[str, Any]:
    partition, share = device.partition, device.share
    return {
        **_plain(device),
        "partition": None if partition is None else _plain(partition),
        "share": None if share is None else _plain(share),
    }


def _read_device(body: Mapping[str, Any]) -> HeldDevice:
    partition, share = body.get("partition"), body.get("share")
    records = {
        "partition": None if partition is None else PartitionRecord(**_known(PartitionRecord, partition)),
        "share": None if share is None else ShareRecord(**_known(ShareRecord, share)),
    }
    return HeldDevice(**{**_known(HeldDevice, body), **records})


def _known(kind: type[_Record], body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in _FIELDS[kind] if name in body}
