"""The journal's entry of one claim, and its file: versioned JSON with a checksum.

During a rolling update the older instance reads what the newer one writes, so within a schema fields may only
be added. A version that changes more writes a new schema. A version that does not know that schema still
reads which GPUs the claim holds: every schema has the checksum, and in the entry ``uid`` and ``devices``
with ``device``, ``pci`` and ``more_gpus``.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from driver.devices.sharing import Strategy
from driver.kinds.kind import OfferedKind
from driver.kinds.registry import KINDS
from driver.kube.decode import decode_json
from driver.nvml.pci_address import PciAddress
from kubeletplugin.kubelet.wire.planned import PlannedDevice


def boottime_ns() -> int:
    """Nanoseconds since the machine started."""
    # Unlike CLOCK_MONOTONIC it goes on while the machine is suspended. Nobody can set it, as the time of day
    # can be set, and it is the same in all processes.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def is_same_load(one: str, other: str) -> bool:
    """Whether two generations of the NVIDIA driver are one load of it, so that what was made still exists.

    A generation is empty if it was not known. Two loads then count as the same, and callers find out from the
    hardware.
    """
    return not (one and other) or one == other


@dataclass(frozen=True, slots=True)
class Identity:
    """The DRA driver, the pool of this node, and the running boot.

    ``pool`` is empty if the devices of the driver are those of several nodes.

    ``driver_generation()`` differs between the loads of the NVIDIA driver within the boot.
    """

    driver: str
    pool: str
    boot_id: str
    driver_generation: Callable[[], str] = lambda: ""


def driver_generation(sysfs_root: Path) -> str:
    """An id of the current load of the NVIDIA driver that no other load of this boot has.

    Empty if the driver is not loaded, or if sysfs cannot be read.
    """
    # The inode number of the module's folder in sysfs. The kernel makes the folder when the module is loaded,
    # and removes it when the module is unloaded. sysfs is a kernfs: the number is the node's id, which kernfs
    # counts up over its whole life, and every mount of sysfs shows the same. On 64-bit machines it is the
    # whole id of 64 bits since Linux 5.5; before, and on others, its lower half, which is used again after
    # 2^31 nodes at the earliest. The folder's times are of no use: the kernel sets those of a kernfs inode
    # when it needs the inode, and again when memory was short in between.
    try:
        return str(os.stat(f"{sysfs_root}/module/nvidia").st_ino)  # noqa: PTH116 - on every prepare
    except OSError:
        return ""


NEWER_SCHEMA = "schema "
"""In an entry of a newer schema the kind of every device is this, followed by the schema's number."""

SCHEMA = 1

State = Literal["preparing", "prepared", "releasing", "released", "lost"]
_STATES: tuple[State, ...] = get_args(State)

Record = Mapping[str, Any]
"""The data that a kind keeps about a device that it has found or made.

It is JSON that only the kind reads.
"""


class MalformedEntry(Exception):
    """The bytes are not a journal entry. The message says what is wrong with them."""


@dataclass(frozen=True, slots=True)
class ShareRecord:
    """How a device is shared, and how much of it this claim may use.

    ``group`` is the name of the shared device without its share. If one claim shares several GPUs among its
    own pods by MPS, it is the name of the first GPU. ``shares`` and ``memory_bytes`` are the claim's part.
    Each is 0 if the device is not divided by it, or if the claim has the device for itself. ``interval`` is
    the requested time-slice, empty for none; where other claims may have shares beside it, only the class can
    request one. ``active_thread_percentage`` and ``pinned_memory_mib`` (0 for none) are the limits of MPS for
    each process.
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
        """Whether other claims can have shares beside it. If not, the claim has the device for itself."""
        return bool(self.shares or self.memory_bytes)

    @property
    def attributes(self) -> dict[str, str | int]:
        """How the device is shared, and the limits of each process, for the claim's status and metadata."""
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
class HeldDevice:
    """One device that a claim holds: the allocation result, and the hardware behind it.

    In an entry that is ``lost`` it has only what its name in the CDI spec says.
    """

    # As in the allocation, req or req/sub.
    request: str
    pool: str
    device: str
    # The PCI address of its GPU as sysfs writes it, and that GPU's UUID. Both are empty for a device without
    # a GPU.
    pci: str
    uuid: str
    cdi_device: str
    share_id: str | None = None
    admin_access: bool = False
    # The word of its kind.
    kind: str = field(kw_only=True)
    # Empty if the kind keeps nothing.
    record: Record = field(default_factory=dict)
    # None if the device is not shared, and for admin access.
    share: ShareRecord | None = None
    # The PCI addresses of the other GPUs, for a device that spans several.
    more_gpus: tuple[str, ...] = ()
    # Its name in the claim's allocation, if another driver published and prepared it; else that is
    # ``device``.
    published_as: str = ""
    # The memory of the GPU that the NVIDIA driver lets the claim's containers have, all together; None if it
    # does not limit them.
    memory_limit_bytes: int | None = None
    # The DeviceClass of the request; empty if another driver prepared the claim.
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
    def offered(self) -> OfferedKind | None:
        """The half of its kind that publishes; None if only a newer version knows the kind."""
        return KINDS.of_word(self.kind)

    @property
    def leaves_driver(self) -> bool:
        """Whether its GPU leaves the NVIDIA driver while the claim has it; true for an unknown kind."""
        return self.offered is None or self.offered.leaves_driver

    @property
    def allocated_name(self) -> str:
        """The device's name in the claim's allocation."""
        return self.published_as or self.device

    @property
    def gpus(self) -> tuple[str, ...]:
        """The addresses of its GPUs; none for a device without a GPU."""
        return (self.pci, *self.more_gpus) if self.pci else ()

    @property
    def places(self) -> tuple[str, ...]:
        """The keys by which it is locked and found: its GPUs, or its own name for a device without a GPU."""
        # Without a key two claims could take such a device at once.
        return self.gpus or (self.device,)


@dataclass(frozen=True, slots=True)
class Entry:
    """The state of one claim on this node when it was written. ``standing`` says what it means now.

    ``preparing``: the claim holds its devices, and may be prepared in part. ``prepared``: the CDI spec is
    written or is about to be. ``releasing``: nobody uses the claim any more, but not everything that was made
    for it could be destroyed yet. ``released``: a tombstone, by which a late prepare is refused. ``lost``:
    the claim's file was lost and its CDI spec was not; its GPUs are nobody else's until it has ended.
    """

    uid: str
    # Empty if the entry is lost, and perhaps for claims that another driver prepared.
    namespace: str
    name: str
    state: State
    # CLOCK_BOOTTIME
    changed_ns: int
    devices: tuple[HeldDevice, ...] = ()
    spec_sha256: str = ""
    # The load of the NVIDIA driver, empty if it was not known.
    driver_generation: str = ""
    # The pod's name for the claim, empty if no template made the claim.
    pod_claim_name: str = ""

    @property
    def holds(self) -> bool:
        """Whether the claim holds its devices."""
        return self.state != "released"

    @property
    def is_named(self) -> bool:
        """Whether the namespace and name are known, by which the API server has the claim."""
        return bool(self.name)

    @property
    def owner(self) -> str:
        """The claim for the node's log. Events and errors must not name claims of other namespaces."""
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
        """Whether the NVIDIA driver limits its containers' memory on any of its devices."""
        return any(device.memory_limit_bytes is not None for device in self.devices)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The addresses of the physical GPUs of its devices, each once, sorted."""
        return tuple(sorted({pci for device in self.devices for pci in device.gpus}))

    @property
    def places(self) -> tuple[str, ...]:
        """The keys by which its devices are locked and found, each once, sorted."""
        return tuple(sorted({place for device in self.devices for place in device.places}))


@dataclass(frozen=True, slots=True)
class Standing:
    """What a claim's entry means now.

    ``state`` is the entry's state, ``unknown`` without an entry. ``ended`` is true if the NVIDIA driver was
    loaded again since, which ends everything that was made for the claim.
    """

    state: State | Literal["unknown"]
    ended: bool = False

    @property
    def is_live(self) -> bool:
        """Whether the claim holds devices, and what was made for it may still exist."""
        return not self.ended and self.state not in ("unknown", "released")

    @property
    def has_devices(self) -> bool:
        """Whether the claim has its devices or is about to get them: it is live, and not being released."""
        return self.is_live and self.state != "releasing"

    @property
    def is_prepared(self) -> bool:
        """Whether the claim has its devices, and its entry is complete."""
        return self == _PREPARED


_PREPARED = Standing("prepared")


def standing(entry: Entry | None, generation: str) -> Standing:
    """What a claim's entry means in this load of the NVIDIA driver; see ``is_same_load``.

    Devices whose GPUs have left the driver outlive another load of it.
    """
    if entry is None:
        return Standing("unknown")
    is_there = is_same_load(entry.driver_generation, generation) or all(
        held.leaves_driver for held in entry.devices
    )
    return Standing(entry.state, not is_there)


def is_live(entry: Entry, held: HeldDevice, generation: str) -> bool:
    """Whether the entry's record of this one of its devices is still true in this load of the driver."""
    return standing(entry, generation).is_live or (held.leaves_driver and entry.holds)


def encode(entry: Entry) -> bytes:
    """The file of an entry."""
    plain = {**_plain(entry), "devices": [_device(device) for device in entry.devices]}
    body = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{{"schema":{SCHEMA},"sha256":"{digest}","entry":{body}}}\n'.encode()


def decode(data: bytes) -> Entry:
    """Read an entry, also one with fields that a newer version added. Raises MalformedEntry.

    Of a newer schema only the fields that every schema has are read. The devices then have a kind that this
    version does not know: they stay held, and only the version that prepared them can release them.
    """
    try:
        document = decode_json(data)
        schema, body = document["schema"], document["entry"]
        if not isinstance(schema, int) or schema < SCHEMA:
            raise MalformedEntry(f"it has schema {schema!r}, but this version reads {SCHEMA}")
        # The checksum is that of the entry alone. Encoded again in the writer's form, it has the same bytes.
        canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
        if hashlib.sha256(canonical.encode()).hexdigest() != document["sha256"]:
            raise MalformedEntry("the checksum does not match the content")
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


_Written = Entry | HeldDevice | ShareRecord

_FIELDS = {kind: tuple(one.name for one in fields(kind)) for kind in (Entry, HeldDevice, ShareRecord)}


def _plain(value: _Written) -> dict[str, Any]:
    return {name: getattr(value, name) for name in _FIELDS[type(value)]}


def _device(device: HeldDevice) -> dict[str, Any]:
    share = device.share
    return {**_plain(device), "record": device.record, "share": None if share is None else _plain(share)}


def _read_device(body: Mapping[str, Any]) -> HeldDevice:
    share = body.get("share")
    nested = {
        "record": body.get("record") or {},
        "share": None if share is None else ShareRecord(**_known(ShareRecord, share)),
        "more_gpus": tuple(map(str, body.get("more_gpus") or ())),
    }
    held = HeldDevice(**{**_known(HeldDevice, body), **nested})
    if not isinstance(held.record, dict):
        raise MalformedEntry("the record of a device is not an object")
    return held


def _known(kind: type[_Written], body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in _FIELDS[kind] if name in body}
