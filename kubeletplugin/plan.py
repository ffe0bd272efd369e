"""Decides what a claim needs on this node before anything is touched: pure, and every refusal first."""

from __future__ import annotations

from dataclasses import dataclass

from driver.claims import AllocatedDevice, Claim, ClaimConfig
from driver.errors import ClaimRefused, DeviceHeld
from driver.model import PciAddress
from driver.names import cdi_device_name, parse_gpu_device_name
from driver.opaque import GpuConfig, decode_gpu_config
from kubeletplugin.claim_call import PreparedDevice
from kubeletplugin.entry import Entry, HeldDevice


@dataclass(frozen=True, slots=True)
class PlannedDevice:
    """One device to prepare: what was allocated, and the physical GPU that its name stands for."""

    allocated: AllocatedDevice
    pci: PciAddress
    cdi_device: str

    def held(self, uuid: str) -> HeldDevice:
        """The journal's record of the device, once the UUID of its GPU is known."""
        allocated = self.allocated
        return HeldDevice(
            allocated.request,
            allocated.pool,
            allocated.device,
            str(self.pci),
            uuid,
            self.cdi_device,
            allocated.share_id,
            allocated.admin_access,
        )


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
    pci = parse_gpu_device_name(device.device)
    if pci is None:
        raise ClaimRefused(
            f"device {device.device} of claim {claim.namespace}/{claim.name} is none that this node offers",
            "delete the pod, so that it is scheduled anew with a device that exists",
        )
    configs = [_decoded(claim, device, config) for config in claim.configs_of(device)]
    strategy = configs[-1].strategy if configs else None
    if strategy is not None and not device.admin_access:
        raise ClaimRefused(
            f"request {device.request} asks for sharing by {strategy}, and {device.device} is a whole GPU "
            "that is handed to one claim at a time",
            "remove `sharing` from the opaque configuration",
        )
    return PlannedDevice(device, pci, cdi_device_name(claim.uid, device.device, device.share_id))


def _decoded(claim: Claim, device: AllocatedDevice, config: ClaimConfig) -> GpuConfig:
    try:
        return decode_gpu_config(config.parameters)
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


def refuse_if_held(device: PlannedDevice, claim_uid: str, holders: tuple[Entry, ...]) -> None:
    """Raise DeviceHeld when another claim has the device for itself.

    A force-deleted pod or two schedulers can hand one device out twice. Claims with admin access stand
    beside any other.
    """
    if device.allocated.admin_access:
        return
    for entry in holders:
        if entry.uid == claim_uid:
            continue
        for held in entry.devices:
            if held.device == device.allocated.device and not held.admin_access:
                raise DeviceHeld(
                    f"device {held.device} is still held by claim {_whose(entry)}",
                    "it is let go when that claim's pod has ended; delete the pod if it should not run",
                )


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
