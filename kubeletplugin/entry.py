"""What the journal remembers of one claim, and how it is written: versioned JSON with a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from driver.mig import Placement

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
    """

    profile: str
    profile_id: int
    start: int
    size: int
    attempted: bool = False
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    uuid: str = ""

    @property
    def placement(self) -> Placement:
        """Where it lies."""
        return Placement(self.start, self.size)


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """One device that a claim holds: the allocation result, and the hardware that it stood for.

    ``pci`` is the address as sysfs writes it. ``uuid`` is empty where it is not known, which is so
    only for an entry that was rebuilt from a CDI spec. It is the GPU's, also of a partition, which
    ``partition`` describes; that is None for a whole GPU and for the partitions of a rebuilt entry.
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


_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in (Entry, HeldDevice, PartitionRecord)}


def _plain(value: Entry | HeldDevice | PartitionRecord) -> dict[str, Any]:
    return {name: getattr(value, name) for name in _FIELDS[type(value)]}


def _device(device: HeldDevice) -> dict[str, Any]:
    partition = device.partition
    return {**_plain(device), "partition": None if partition is None else _plain(partition)}


def _read_device(body: Mapping[str, Any]) -> HeldDevice:
    partition = body.get("partition")
    record = None if partition is None else PartitionRecord(**_known(PartitionRecord, partition))
    return HeldDevice(**{**_known(HeldDevice, body), "partition": record})


def _known(kind: type[Entry | HeldDevice | PartitionRecord], body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in _FIELDS[kind] if name in body}
