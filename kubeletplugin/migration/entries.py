"""Makes a journal entry for a claim that NVIDIA's driver prepared, if the hardware confirms it.

It only compares values and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from driver.devices.names import gpu_device_name
from driver.hardware.gpu import Gpu, Inventory, Partition
from driver.kinds.partition.kind import MADE, STATIC
from driver.kinds.partition.names import partition_device_name, static_device_name
from driver.kinds.whole import WHOLE
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.devices.kinds.partition.record import PartitionRecord, written
from kubeletplugin.kubelet.wire.containers import ClaimInUse
from kubeletplugin.kubelet.wire.names import CDI_CLASS, CDI_VENDOR, cdi_device_name
from kubeletplugin.migration.checkpoint import PreparedClaim, PreparedDevice

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
        f"{CDI_VENDOR}/{CDI_CLASS}={cdi_device_name(uid, result.device)}",
        f"{CDI_VENDOR}/device={result.device}",
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
