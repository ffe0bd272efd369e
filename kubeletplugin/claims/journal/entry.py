"""What the journal remembers of one claim, and how it is written: versioned JSON with a checksum.

The schema only adds: during a rolling update the instance before reads what this one writes. A version that
does more than add writes another schema. Who does not know that one still reads which GPUs the claim holds:
each schema has the checksum, and in the entry ``uid``, ``boot_id`` and ``devices`` with ``device``, ``pci``
and ``more_gpus``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from driver.devices.sharing import Strategy
from driver.kube.decode import decode_json
from driver.nvml.pci_address import PciAddress
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.kubelet.wire.planned import PlannedDevice

NEWER_SCHEMA = "schema "
"""The kind of all devices of an entry of a newer schema begins so; the schema's number follows."""

SCHEMA = 1

State = Literal["preparing", "prepared", "releasing", "released"]
_STATES: tuple[State, ...] = get_args(State)

Record = Mapping[str, Any]
"""What a kind remembers of a device that it has found or made: JSON, which only the kind reads."""


class MalformedEntry(Exception):
    """The bytes are no journal entry; the message says what is wrong with them."""


@dataclass(frozen=True, slots=True)
class ShareRecord:
    """How a device is shared, and what this claim may use of it.

    ``group`` names what is shared as one: the unshared name of the device, or of the first of several GPUs
    that one claim shares among its own pods by MPS. ``shares`` and ``memory_bytes`` are what the claim was
    given, 0 where that does not measure the device, or where the claim has the device for itself.
    ``interval`` is the time-slice that was asked for, by the class where others may have shares beside it,
    empty where nothing was. Limits of MPS are for each process: ``active_thread_percentage``, and
    ``pinned_memory_mib``, 0 for none.
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

    @property
    def told(self) -> dict[str, str | int]:
        """How the device is shared, and the limits of each process of the claim, as users are told."""
        if self.strategy == "TimeSlicing":
            found: dict[str, str | int] = {"sharing": "time-slicing", "interval": self.interval or "Default"}
        else:
            found = {"sharing": "mps", "activeThreadPercentage": self.active_thread_percentage}
            if self.pinned_memory_mib:
                found["pinnedMemoryMiB"] = self.pinned_memory_mib
        if self.shares:
            found["shares"] = self.shares
        if self.memory_bytes:
            found["memoryBytes"] = self.memory_bytes
        return found


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """What the NVIDIA driver holds the containers of a claim to on a GPU, all together, in bytes.

    ``guaranteed_bytes`` is theirs whatever others do. ``most_bytes`` is the most that they ever have, and
    more than that only where the class of the device allows a burst. ``to_free`` lets them have what no claim
    is guaranteed, up to ``most_bytes``. ``parts`` has what single containers get, by their names. The others
    have equal parts of the rest, at most ``each_bytes`` where that is not 0.
    """

    guaranteed_bytes: int
    most_bytes: int
    to_free: bool = False
    each_bytes: int = 0
    parts: Mapping[str, int] = field(default_factory=dict)

    @property
    def told(self) -> dict[str, str | int]:
        """The limits of all containers of the claim together, as users are told."""
        return {"memoryGuaranteedBytes": self.guaranteed_bytes, "memoryLimitBytes": self.most_bytes}


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """One device that a claim holds: the allocation result, and the hardware that it stands for.

    ``pci`` is the address of its GPU as sysfs writes it, ``uuid`` that GPU's UUID; both are empty for a
    device that lies on no GPU, and the UUID for an entry that was rebuilt from a CDI spec. ``more_gpus`` are
    the addresses of the other GPUs of a device that spans several. ``kind`` is the word of the device's kind.
    ``record`` is what the kind remembers of it, empty where that is nothing, and in rebuilt entries.
    ``share`` is None for a device that is not shared, for admin access, and in rebuilt entries.
    ``published_as`` is the name that the claim's allocation has for it, where another driver published and
    prepared it; else that is ``device``. ``memory`` is None where the NVIDIA driver holds the containers to
    nothing, and in rebuilt entries. ``device_class`` is the DeviceClass of the request, empty where another
    driver prepared the claim, and in rebuilt entries.
    """

    request: str
    pool: str
    device: str
    pci: str
    uuid: str
    cdi_device: str
    share_id: str | None = None
    admin_access: bool = False
    kind: str = field(kw_only=True)
    record: Record = field(default_factory=dict)
    share: ShareRecord | None = None
    more_gpus: tuple[str, ...] = ()
    published_as: str = ""
    memory: MemoryRecord | None = None
    device_class: str = ""

    @classmethod
    def of(cls, planned: PlannedDevice, uuid: str, record: Record | None = None) -> HeldDevice:
        """The record of a planned device, once the UUID of its GPU is known."""
        allocated = planned.allocated
        first, *more = planned.name.gpus or ("",)
        return cls(
            allocated.request,
            allocated.pool,
            allocated.device,
            first,
            uuid,
            planned.cdi_device,
            allocated.share_id,
            allocated.admin_access,
            kind=planned.name.kind.word,
            record=record or {},
            more_gpus=tuple(more),
            device_class=allocated.device_class,
        )

    @property
    def allocated_name(self) -> str:
        """The device's name in the claim's allocation."""
        return self.published_as or self.device

    @property
    def gpus(self) -> tuple[str, ...]:
        """The addresses of its GPUs; none for a device that lies on no GPU."""
        return (self.pci, *self.more_gpus) if self.pci else ()

    @property
    def places(self) -> tuple[str, ...]:
        """What is locked, and looked up, for it: its GPUs, or for a device that lies on none, itself."""
        return self.gpus or (self.device,)


@dataclass(frozen=True, slots=True)
class Entry:
    """The state of one claim on this node, as it was noted; what it means now says ``standing``.

    ``preparing``: the claim holds its devices, the work may be half done. ``prepared``: the CDI spec with
    ``spec_sha256`` is written or about to be. ``releasing``: nobody uses the claim any more, but not all that
    was made for it could be destroyed yet. ``released``: a tombstone that stops a late retry. ``changed_ns``
    is CLOCK_BOOTTIME and means something within ``boot_id`` only. ``driver_generation`` is the load of the
    NVIDIA driver, empty where it was not known. ``rebuilt`` marks an entry whose file was lost or unreadable:
    namespace, name and requests are not known. Namespace and name may also be empty in an entry of a claim
    that another driver prepared. ``pod_claim_name`` is what the claim's pod calls it where a template
    made it, empty where none did.
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
    driver_generation: str = ""
    pod_claim_name: str = ""

    @property
    def holds(self) -> bool:
        """Whether the claim holds its devices."""
        return self.state != "released"

    @property
    def is_named(self) -> bool:
        """Whether the claim's namespace and name are known, by which the API has it."""
        return not self.rebuilt and bool(self.name)

    @property
    def owner(self) -> str:
        """The claim in words, for the node's log: who else sees them must not learn of other namespaces."""
        return f"{self.namespace}/{self.name} (UID {self.uid})" if self.is_named else f"UID {self.uid}"

    @property
    def is_taken_over(self) -> bool:
        """Whether another driver prepared any of its devices."""
        return any(device.published_as for device in self.devices)

    @property
    def shares(self) -> bool:
        """Whether any of its devices is shared."""
        return any(device.share is not None for device in self.devices)

    @property
    def is_limited(self) -> bool:
        """Whether the NVIDIA driver holds its containers to their memory on any of its devices."""
        return any(device.memory is not None for device in self.devices)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The addresses of the physical GPUs of its devices, each once, sorted."""
        return tuple(sorted({pci for device in self.devices for pci in device.gpus}))

    @property
    def places(self) -> tuple[str, ...]:
        """What is locked for its devices, each once, sorted."""
        return tuple(sorted({place for device in self.devices for place in device.places}))


@dataclass(frozen=True, slots=True)
class Standing:
    """What a claim's entry means now.

    ``state`` is that of the entry, ``unknown`` where there is none. ``ended`` is what has ended since, with
    what was made for the claim: the ``load`` of the NVIDIA driver, the ``boot``, or nothing (empty).
    ``rebuilt`` is whether only the claim's CDI spec is known.
    """

    state: State | Literal["unknown"]
    ended: Literal["", "load", "boot"] = ""
    rebuilt: bool = False

    @property
    def is_live(self) -> bool:
        """Whether the claim holds devices, and what was made for it may be there."""
        return not self.ended and self.state not in ("unknown", "released")

    @property
    def has_devices(self) -> bool:
        """Whether the claim has its devices, or is about to get them: it is live, and nobody lets it go."""
        return self.is_live and self.state != "releasing"

    @property
    def is_prepared(self) -> bool:
        """Whether the claim has its devices, and all is known of it."""
        return self == _PREPARED


_PREPARED = Standing("prepared")


def standing(
    entry: Entry | None, era: Era, outlives: Callable[[HeldDevice], bool] = lambda _: False
) -> Standing:
    """What a claim's entry means in this era. ``outlives`` is whether a device outlives a load of the driver.

    An era that names no load of the driver covers all loads of its boot.
    """
    if entry is None:
        return Standing("unknown")
    if entry.boot_id != era.boot_id:
        return Standing(entry.state, "boot", entry.rebuilt)
    is_there = era.covers(entry.boot_id, entry.driver_generation) or all(map(outlives, entry.devices))
    return Standing(entry.state, "" if is_there else "load", entry.rebuilt)


def encode(entry: Entry) -> bytes:
    """The file of an entry."""
    plain = {**_plain(entry), "devices": [_device(device) for device in entry.devices]}
    body = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{{"schema":{SCHEMA},"sha256":"{digest}","entry":{body}}}\n'.encode()


def decode(data: bytes) -> Entry:
    """Read an entry, also one with fields that a newer version added; raises MalformedEntry.

    Of an entry of a newer schema that is read which every schema has. Its devices are of a kind that this
    version does not know, so they are held, and left to the version that prepared them.
    """
    try:
        document = decode_json(data)
        schema, body = document["schema"], document["entry"]
        if not isinstance(schema, int) or schema < SCHEMA:
            raise MalformedEntry(f"it has schema {schema!r}, and this version reads {SCHEMA}")
        canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
        if hashlib.sha256(canonical.encode()).hexdigest() != document["sha256"]:
            raise MalformedEntry("the checksum does not fit the content")
        if schema > SCHEMA:
            return _of_newer_schema(schema, body)
        devices = tuple(_read_device(device) for device in body["devices"])
        entry = Entry(**{**_known(Entry, body), "devices": devices})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedEntry(f"not a journal entry: {error!r}") from error
    if entry.state not in _STATES:
        raise MalformedEntry(f"unknown state {entry.state!r}")
    return entry


def _of_newer_schema(schema: int, body: Mapping[str, Any]) -> Entry:
    state = body.get("state")
    return Entry(
        str(body["uid"]),
        str(body.get("namespace") or ""),
        str(body.get("name") or ""),
        state if state in _STATES else "prepared",
        str(body["boot_id"]),
        int(body.get("changed_ns") or 0),
        tuple(_device_of_newer_schema(schema, device) for device in body["devices"]),
        spec_sha256=str(body.get("spec_sha256") or ""),
        driver_generation=str(body.get("driver_generation") or ""),
    )


def _device_of_newer_schema(schema: int, body: Mapping[str, Any]) -> HeldDevice:
    pci, *more = (str(PciAddress.parse(one)) if one else "" for one in (body["pci"], *body["more_gpus"]))
    request, pool, uuid, cdi_device, published_as = (
        str(body.get(name) or "") for name in ("request", "pool", "uuid", "cdi_device", "published_as")
    )
    return HeldDevice(
        request,
        pool,
        str(body["device"]),
        pci,
        uuid,
        cdi_device,
        kind=f"{NEWER_SCHEMA}{schema}",
        more_gpus=tuple(more),
        published_as=published_as,
    )


_Written = Entry | HeldDevice | ShareRecord | MemoryRecord

_FIELDS = {
    kind: tuple(one.name for one in fields(kind)) for kind in (Entry, HeldDevice, ShareRecord, MemoryRecord)
}


def _plain(value: _Written) -> dict[str, Any]:
    return {name: getattr(value, name) for name in _FIELDS[type(value)]}


def _device(device: HeldDevice) -> dict[str, Any]:
    share, memory = device.share, device.memory
    return {
        **_plain(device),
        "record": device.record,
        "share": None if share is None else _plain(share),
        "memory": None if memory is None else _plain(memory),
    }


def _read_device(body: Mapping[str, Any]) -> HeldDevice:
    share, memory = body.get("share"), body.get("memory")
    told = {
        "record": body.get("record") or {},
        "share": None if share is None else ShareRecord(**_known(ShareRecord, share)),
        "memory": None if memory is None else MemoryRecord(**_known(MemoryRecord, memory)),
        "more_gpus": tuple(map(str, body.get("more_gpus") or ())),
    }
    held = HeldDevice(**{**_known(HeldDevice, body), **told})
    if not isinstance(held.record, dict):
        raise MalformedEntry("the record of a device is no object")
    return held


def _known(kind: type[_Written], body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in _FIELDS[kind] if name in body}
