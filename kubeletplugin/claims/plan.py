"""Decides what a claim needs on this node before anything is touched: pure, and every refusal first."""

from __future__ import annotations

from collections.abc import Mapping

from driver.claims.allocation import AllocatedDevice, Claim, ClaimConfig
from driver.claims.opaque import GpuConfig, MigDeviceConfig, decode_gpu_config, decode_mig_config
from driver.devices.names import parse_device_name, unshared_name
from driver.errors import ClaimRefused, DeviceHeld
from driver.nvml.pci_address import PciAddress
from kubeletplugin.journal.entry import Entry, HeldDevice, PartitionRecord
from kubeletplugin.sharing.plan import wish_of
from kubeletplugin.wire.claim_call import PreparedDevice
from kubeletplugin.wire.names import cdi_device_name
from kubeletplugin.wire.planned import PlannedDevice


def plan(claim: Claim, pool: str) -> tuple[PlannedDevice, ...]:
    """The devices that the claim was given by us, in allocation order.

    Raises ClaimRefused for a device or a pool that this node does not have, a configuration that is
    malformed, or one that asks for what the device cannot do.
    """
    return tuple(_planned(claim, device, pool) for device in claim.devices)


def _planned(claim: Claim, device: AllocatedDevice, pool: str) -> PlannedDevice:
    if device.pool != pool:
        raise ClaimRefused(
            f"claim {claim.namespace}/{claim.name} was given device {device.device} of pool {device.pool}, "
            f"this node's pool is {pool}",
            "delete the pod, so that it is scheduled anew",
        )
    name = parse_device_name(device.device)
    if name is None:
        raise ClaimRefused(
            f"device {device.device} of claim {claim.namespace}/{claim.name} is none that this node offers",
            "delete the pod, so that it is scheduled anew with a device that exists",
        )
    whole = name.profile is None
    configs = [
        decoded
        for config in claim.configs_of(device)
        if (decoded := _decoded(claim, device, config, whole=whole)) is not None
    ]
    wish = wish_of(device, name, configs[-1] if configs else None)
    return PlannedDevice(device, name, cdi_device_name(claim.uid, device.device, device.share_id), wish)


def _decoded(
    claim: Claim, device: AllocatedDevice, config: ClaimConfig, *, whole: bool
) -> GpuConfig | MigDeviceConfig | None:
    """The configuration if it is for this kind of device.

    One for all requests that is of another kind is meant for the others; one that names the request is
    a mistake.
    """
    kind = config.parameters.get("kind") if isinstance(config.parameters, Mapping) else None
    others = {"GpuConfig", "MigDeviceConfig", "VfioDeviceConfig"} - {
        "GpuConfig" if whole else "MigDeviceConfig"
    }
    if not config.requests and kind in others:
        return None
    try:
        return (decode_gpu_config if whole else decode_mig_config)(config.parameters)
    except ClaimRefused as error:
        raise ClaimRefused(
            f"claim {claim.namespace}/{claim.name}, request {device.request}: {error.what}", error.way_out
        ) from error


def gpus_of(devices: tuple[PlannedDevice, ...]) -> tuple[PciAddress, ...]:
    """The physical GPUs that are concerned, each once, in the order in which they are locked."""
    return tuple(sorted({device.pci for device in devices}))


def gpus_held(devices: tuple[HeldDevice, ...]) -> tuple[PciAddress, ...]:
    """The physical GPUs of a journal entry's devices, each once, sorted."""
    return tuple(sorted({PciAddress.parse(device.pci) for device in devices}))


def refuse_if_held(
    device: PlannedDevice, partition: PartitionRecord | None, claim_uid: str, holders: tuple[Entry, ...]
) -> None:
    """Raise DeviceHeld when another claim has the device, or part of it, for itself.

    ``partition`` is where the device lies, None for a whole GPU. A force-deleted pod or two schedulers can
    hand one device out twice; a partition and its GPU, or two partitions that overlap, exclude each other.
    Claims with admin access stand beside any other, and shares of one device beside each other.
    """
    if device.allocated.admin_access:
        return
    for entry in holders:
        for held in entry.devices:
            if entry.uid != claim_uid and not held.admin_access and _collide(device, partition, held):
                same = held.device == device.allocated.device
                how = "is" if same else f"takes a part of {device.allocated.device} and is"
                raise DeviceHeld(
                    f"device {held.device} {how} still held by claim {_whose(entry)}",
                    "it is let go when that claim's pod has ended; delete the pod if it should not run",
                )


def _collide(device: PlannedDevice, partition: PartitionRecord | None, held: HeldDevice) -> bool:
    """Whether the two cannot be there at once."""
    other = parse_device_name(held.device)
    if held.device == device.allocated.device:
        return device.name.shared is None
    if other is None or other.pci != device.pci:
        return False
    if device.name.profile is None or other.profile is None:
        return True
    if unshared_name(held.device) == unshared_name(device.allocated.device):
        return True  # one partition, under two names
    if partition is None or held.partition is None or (device.name.static and other.static):
        return False  # parts of one static instance share its place; what else is there, the hardware tells
    return partition.placement.overlaps(held.partition.placement)


def _whose(entry: Entry) -> str:
    return f"UID {entry.uid}" if entry.rebuilt else f"{entry.namespace}/{entry.name} (UID {entry.uid})"


def answer(devices: tuple[HeldDevice, ...], qualified: dict[str, str]) -> tuple[PreparedDevice, ...]:
    """The kubelet's answer from a journal entry, so that a retry answers the same.

    ``qualified`` maps CDI device names to what the runtime is handed.
    """
    return tuple(
        PreparedDevice(
            (held.request.partition("/")[0],),
            held.pool,
            held.device,
            (qualified[held.cdi_device],),
            held.share_id,
        )
        for held in devices
    )
