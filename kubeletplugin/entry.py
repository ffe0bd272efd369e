"""What the journal remembers of one claim, and how it is written: versioned JSON with a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

SCHEMA = 1

State = Literal["preparing", "prepared", "released"]


class MalformedEntry(Exception):
    """The bytes are no journal entry; the message says what is wrong with them."""


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """One device that a claim holds: the allocation result, and the hardware that it stood for.

    ``pci`` is the address as sysfs writes it. ``uuid`` is empty where it is not known, which is so
    only for an entry that was rebuilt from a CDI spec.
    """

    request: str
    pool: str
    device: str
    pci: str
    uuid: str
    cdi_device: str
    share_id: str | None = None
    admin_access: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """The state of one claim on this node.

    ``preparing``: the claim holds its devices, the work may be half done. ``prepared``: the CDI spec
    with ``spec_sha256`` was written and answered. ``released``: a tombstone that stops a late retry.
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


_ENTRY_FIELDS = tuple(field.name for field in fields(Entry))
_DEVICE_FIELDS = tuple(field.name for field in fields(HeldDevice))


def encode(entry: Entry) -> bytes:
    """The file of an entry."""
    plain = {name: getattr(entry, name) for name in _ENTRY_FIELDS}
    plain["devices"] = [{name: getattr(device, name) for name in _DEVICE_FIELDS} for device in entry.devices]
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
        devices = tuple(HeldDevice(**_known(HeldDevice, device)) for device in body["devices"])
        entry = Entry(**{**_known(Entry, body), "devices": devices})
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedEntry(f"not a journal entry: {error!r}") from error
    if entry.state not in ("preparing", "prepared", "released"):
        raise MalformedEntry(f"unknown state {entry.state!r}")
    return entry


def _known(kind: type[Entry | HeldDevice], body: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: body[field.name] for field in fields(kind) if field.name in body}
