"""Takes the place of NVIDIA's driver on a node: waits until that is possible, then takes its claims over.

The kubelet would call two drivers of one name on a node in turn, and each would give out GPUs that the other
holds. So while another one answers, or has left claims that cannot be taken over, the plugin opens no socket:
the kubelet does not know it, nothing is published, and nothing on the disk changes.

Either all claims are taken over or none. Nobody could unprepare a claim that is left out: that driver is
gone, and this one does not know what was made for it. And once some were taken over, that driver could not
come back for the rest, since it would go on with claims that are no longer its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from driver.devices.names import gpu_device_name
from driver.errors import DriverError
from driver.hardware.gpu import Gpu, Inventory, Partition
from driver.kinds.partition.kind import MADE, STATIC
from driver.kinds.partition.names import partition_device_name, static_device_name
from driver.kinds.whole import WHOLE
from driver.process.durable import remove
from driver.process.log import get_logger
from driver.process.stamp import stamp_of
from kubeletplugin.claims.cdi.store import CdiStore
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.devices.kinds.partition.record import PartitionRecord, written
from kubeletplugin.kubelet.wire.containers import ClaimInUse
from kubeletplugin.kubelet.wire.names import cdi_device_name, cdi_qualified_name, cdi_vendor
from kubeletplugin.migration.checkpoint import Checkpoint, PreparedClaim, PreparedDevice

_log = get_logger("predecessor")

_YOUNG = "young"


class CannotTakeOver(DriverError):
    """Claims that NVIDIA's driver prepared have to end first; the plugin's log names them and their pods."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """What to do with the claims of NVIDIA's driver."""

    # The journal entries of the claims to take over.
    entries: tuple[Entry, ...] = ()
    # The UIDs of claims of an earlier boot, which have ended.
    ended: tuple[str, ...] = ()


def decide(checkpoint: Checkpoint, boot_id: str, surroundings: Callable[[], Surroundings]) -> TakeOver:
    """Decide which claims of a checkpoint to take over; raises CannotTakeOver.

    ``surroundings`` reads the node, and is called only if there is something to compare; it raises
    DriverError. A boot ends every claim. A checkpoint without a boot may have claims of an earlier one: they
    are taken over as well, and unprepared once no container has them.
    """
    if checkpoint.boot_id and checkpoint.boot_id != boot_id:
        return TakeOver(ended=tuple(claim.uid for claim in checkpoint.claims))
    if not checkpoint.claims:
        return TakeOver()
    around = surroundings()
    entries, refused, reasons = [], [], set()
    for claim in checkpoint.claims:
        try:
            entries.append(entry_of(claim, around))
        except NotConfirmed as reason:
            reasons.add(str(reason))
            refused.append(f"{_described(claim, around.users)}: {reason}")
    if refused:
        raise CannotTakeOver(
            f"{len(refused)} of {len(checkpoint.claims)} claims that NVIDIA's driver prepared on this node "
            f"cannot be taken over ({'; '.join(sorted(reasons))})",
            "let NVIDIA's driver run on this node until the pods that the plugin's log names have ended, "
            "or restart the node, which ends all",
            for_log="; ".join(refused),
        )
    return TakeOver(tuple(entries))


def origins(slices: Iterable[Mapping[str, Any]], node: str) -> dict[str, Origin]:
    """For each partition in the slices of NVIDIA's driver, whether it is made for claims or by an admin."""
    # In these slices a partition of an admin has a UUID; one that is made for claims consumes counters.
    found: dict[str, Origin] = {}
    for item in slices:
        spec = item.get("spec") or {}
        if (spec.get("pool") or {}).get("name") != node:
            continue
        for device in spec.get("devices") or ():
            attributes = device.get("attributes") or {}
            if (attributes.get("type") or {}).get("string") != "mig":
                continue
            if "uuid" in attributes:
                found[str(device.get("name"))] = "static"
            elif device.get("consumesCounters"):
                found[str(device.get("name"))] = "made"
    return found


def _described(claim: PreparedClaim, users: Sequence[ClaimInUse]) -> str:
    """A claim by its name and its pods if they are known, for the admin who has to end them."""
    found = users_of(claim, users)
    if found:
        pods = ", ".join(sorted({f"{one.namespace}/{one.pod}" for one in found}))
        return f"claim {found[0].namespace}/{found[0].claim} of pod {pods}"
    name = f"{claim.namespace}/{claim.name} " if claim.namespace and claim.name else ""
    pods = f" of pod {', '.join(claim.pods)}" if claim.pods else ""
    return f"claim {name}(UID {claim.uid}){pods}"


def take_over_claims(
    decided: TakeOver, checkpoint: Path, store: CdiStore, adopt: Callable[[Entry], bool]
) -> tuple[str, ...]:
    """Take the claims over by ``adopt``, then remove the checkpoint; returns the UIDs of the claims.

    Only one instance may call this at a time. Raises DriverError; the next start continues.
    """
    if not checkpoint.exists():
        return ()  # another instance has done it
    taken = tuple(entry.uid for entry in decided.entries if adopt(entry))
    for uid in decided.ended:
        store.remove_former(uid)
    # The checkpoint is removed last. After a crash before this line, the next start decides again, and
    # finds in the journal what was done already.
    remove(checkpoint)
    _log.warning(
        "took over claims of NVIDIA's driver",
        claims=[entry.owner for entry in decided.entries],
        ended_with_an_earlier_boot=len(decided.ended),
    )
    return taken


@dataclass(frozen=True, slots=True)
class WaitPorts:
    """What the plugin calls while it waits."""

    # Returns a socket at which another driver answers, None if there is none.
    other: Callable[[], Path | None]
    # Decides about the claims in the checkpoint; raises DriverError.
    decide: Callable[[], TakeOver]
    # Posts an event of the node with this text.
    tell: Callable[[str], None]
    # Waits for this many seconds.
    wait: Callable[[float], object]
    # The time in seconds.
    clock: Callable[[], float]


def wait_for_takeover(ports: WaitPorts, checkpoint: Path, check_seconds: float) -> TakeOver:
    """Return what to take over, once no other driver is there and all claims can be taken over.

    The sockets are checked every second. The claims are checked when the checkpoint was written, and every
    ``check_seconds``, since the hardware and the cluster may have changed.
    """
    waiting = _Waiting(ports, checkpoint, check_seconds)
    while (decided := waiting.check()) is None:
        ports.wait(min(1.0, check_seconds))
    return decided


class _Waiting:
    def __init__(self, ports: WaitPorts, checkpoint: Path, check_seconds: float) -> None:
        self._ports = ports
        self._checkpoint = checkpoint
        self._check_seconds = check_seconds
        self._seen: tuple[object, float] | None = None
        self._decided: TakeOver | None = None
        self._error: DriverError | None = None
        self._told = ""

    def check(self) -> TakeOver | None:
        """What to take over, None while that is not possible."""
        # The sockets come before the checkpoint: once the other driver is gone, nobody writes it any more.
        other = self._ports.other()
        self._decide()
        if other is None and self._decided is not None:
            return self._decided
        if other is not None or self._error is not None:
            self._tell(other)
        return None

    def _decide(self) -> None:
        """Decide about the claims again if something may have changed since the last time."""
        stamp, now = self._stamp(), self._ports.clock()
        if stamp == _YOUNG:
            self._seen = self._decided = self._error = None
            return
        if self._seen is not None and self._seen[0] == stamp and now < self._seen[1] + self._check_seconds:
            return
        self._seen = stamp, now
        try:
            self._decided, self._error = self._ports.decide(), None
        except DriverError as error:
            self._decided, self._error = None, error

    def _stamp(self) -> object:
        """The checkpoint's stamp; ``_YOUNG`` while a later checkpoint could have the same one."""
        try:
            return stamp_of(self._checkpoint) or _YOUNG
        except FileNotFoundError:
            return None
        except OSError as error:
            return str(error)

    def _tell(self, other: Path | None) -> None:
        """Report what is in the way, once for each new text."""
        reasons = []
        if other is not None:
            reasons.append(
                f"another driver with the name gpu.nvidia.com answers at {other} on this node, so this one "
                "waits: remove NVIDIA's driver from the node"
            )
        if self._error is not None:
            reasons.append(f"{self._error.what}: {self._error.way_out}")
        text = "; ".join(reasons)
        if text == self._told:
            return
        self._told = text
        held = [entry.owner for entry in self._decided.entries] if self._decided else []
        in_the_way = self._error.logged if self._error else ""
        self._ports.tell(text)
        _log.warning(
            "waiting for NVIDIA's driver", reason=text, in_the_way=in_the_way, can_be_taken_over=held
        )


Origin = Literal["made", "static"]
"""Whether a partition was made for its claim, or by an admin. Its name does not say that."""

# gpu-MINOR-mig-PROFILE-PROFILE_ID-START, as NVIDIA's driver names partitions.
_PARTITION = re.compile(r"gpu-[0-9]+-mig-.+-(?P<profile>[0-9]{1,3})-(?P<start>[0-9]{1,2})", re.ASCII)


class NotConfirmed(Exception):
    """The claim in the checkpoint does not fit the hardware or the slices; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The state of the node that a claim is compared with."""

    # The node's name, which is also the name of that driver's pool.
    node: str
    generation: str
    inventory: Inventory
    # Of the partitions in the slices of NVIDIA's driver, by their names there.
    origins: Mapping[str, Origin]
    # The claims that containers have, empty if the kubelet did not answer.
    users: tuple[ClaimInUse, ...]


def entry_of(claim: PreparedClaim, around: Surroundings) -> Entry:
    """The journal entry of a prepared claim; raises NotConfirmed."""
    if claim.problem:
        raise NotConfirmed(claim.problem)
    devices = tuple(_held(claim.uid, device, around) for device in claim.devices)
    namespace, name = _name_of(claim, around.users)
    generation = around.generation
    # The time 0 says that it was prepared before any call that this process can be working on.
    return Entry(
        claim.uid,
        namespace,
        name,
        "prepared",
        0,
        devices,
        driver_generation=generation,
    )


def users_of(claim: PreparedClaim, users: Sequence[ClaimInUse]) -> tuple[ClaimInUse, ...]:
    """The pods whose containers have the claim."""
    sure = tuple(one for one in users if any(name.startswith(f"{claim.uid}-") for name in one.cdi_devices))
    if sure:
        return sure
    # Before version 25.12 of NVIDIA's driver, the CDI device of a whole GPU had the GPU's name without the
    # claim. Pods with such a device are taken if all of them name the same claim.
    names = {device.result.device for device in claim.devices}
    likely = tuple(one for one in users if not names.isdisjoint(one.cdi_devices))
    return likely if len({(one.namespace, one.claim) for one in likely}) == 1 else ()


def _name_of(claim: PreparedClaim, users: Sequence[ClaimInUse]) -> tuple[str, str]:
    """Namespace and name of the claim, empty if neither the checkpoint nor the kubelet has them."""
    if claim.namespace and claim.name:
        return claim.namespace, claim.name
    return next(((one.namespace, one.claim) for one in users_of(claim, users)), ("", ""))


def _held(uid: str, device: PreparedDevice, around: Surroundings) -> HeldDevice:
    result = device.result
    if result.pool != around.node:
        raise NotConfirmed(f"its device {result.device} is of pool {result.pool}")
    known = {
        cdi_qualified_name(cdi_device_name(uid, result.device)),
        f"{cdi_vendor()}/device={result.device}",
    }
    # Containers that run were given these CDI devices; later specs have to have the same names.
    if not device.cdi_ids or not known.issuperset(device.cdi_ids):
        raise NotConfirmed(f"its device {result.device} has CDI devices with unknown names")
    gpu, name, kind, record = _whole(device, around) if device.kind == "gpu" else _partition(device, around)
    return HeldDevice(
        result.request,
        result.pool,
        name,
        str(gpu.pci),
        gpu.uuid,
        cdi_device_name(uid, result.device),
        result.share_id,
        result.admin_access,
        kind=kind,
        record={} if record is None else written(record),
        published_as=result.device,
    )


_Found = tuple[Gpu, str, str, PartitionRecord | None]


def _whole(device: PreparedDevice, around: Surroundings) -> _Found:
    for gpu in around.inventory.gpus:
        if gpu.uuid == device.uuid:
            return gpu, gpu_device_name(gpu.pci), WHOLE.word, None
    raise NotConfirmed(f"its GPU {device.uuid[:64]} is not on this node")


def _partition(device: PreparedDevice, around: Surroundings) -> _Found:
    for gpu in around.inventory.gpus:
        for there in gpu.mig.partitions if gpu.mig else ():
            if there.uuid == device.uuid:
                origin = _origin(device, gpu, there, around)
                record = _record(gpu, there, attempted=origin == "made")
                return gpu, _partition_name(gpu, there, origin), _WORDS[origin], record
    raise NotConfirmed(f"its partition {device.uuid[:64]} is not on this node")


_WORDS: Mapping[Origin, str] = {"made": MADE.word, "static": STATIC.word}


def _origin(device: PreparedDevice, gpu: Gpu, there: Partition, around: Surroundings) -> Origin:
    """Who made a partition; raises NotConfirmed if the checkpoint does not fit it, or if that is unknown."""
    name = device.result.device
    if device.only_static:
        return "static"
    recorded = (device.parent_uuid, device.gpu_instance_id, device.compute_instance_id)
    match = _PARTITION.fullmatch(name)
    owner = there.gpu_instance
    place = (int(match["profile"]), int(match["start"])) if match else None
    if recorded != (gpu.uuid, owner.id, there.compute_instance.id) or place != (
        owner.profile_id,
        owner.placement.start,
    ):
        raise NotConfirmed(f"its partition {name} is a different one now")
    origin = around.origins.get(name)
    if origin is None:
        raise NotConfirmed(
            f"it is not known whether its partition {name} was made for it, since the slices of NVIDIA's "
            "driver are gone"
        )
    if origin == "made" and not there.whole_instance:
        raise NotConfirmed(f"its partition {name} is only a part of a GPU instance")
    return origin


def _record(gpu: Gpu, there: Partition, *, attempted: bool) -> PartitionRecord:
    owner = there.gpu_instance
    profiles = gpu.mig.profiles if gpu.mig else ()
    memory = (one.profile.memory_bytes for one in profiles if one.profile.id == owner.profile_id)
    return PartitionRecord(
        there.profile,
        owner.profile_id,
        owner.placement.start,
        owner.placement.size,
        attempted,
        owner.id,
        there.compute_instance.id,
        there.uuid,
        next(memory, there.memory_bytes),
    )


def _partition_name(gpu: Gpu, there: Partition, origin: Origin) -> str:
    start = there.gpu_instance.placement.start
    if origin == "made":
        return partition_device_name(gpu.pci, there.profile, start)
    part = None if there.whole_instance else there.compute_instance.placement.start
    return static_device_name(gpu.pci, there.profile, start, part)
