"""Finds what a planned device is on this node, and refuses what another claim has or another board is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from driver.errors import ClaimBlocked, ClaimRefused, NvmlError
from kubeletplugin.claims.collisions import refuse_if_held
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.specs import refuse_changed_board
from kubeletplugin.devices.kinds.kind import HeldKinds, Look
from kubeletplugin.kubelet.wire.planned import PlannedDevice


def own_devices(before: Entry | None, era: Era, kinds: HeldKinds) -> Mapping[str, HeldDevice]:
    """What an earlier try of the claim has left, by name: as far as it means anything in this era."""
    if before is None or not before.holds:
        return {}
    return {held.device: held for held in before.devices if kinds.is_live(before, held, era)}


def located(
    device: PlannedDevice, own: HeldDevice | None, uid: str, look: Look, kinds: HeldKinds, journal: Journal
) -> HeldDevice:
    """What the device is; raises DeviceHeld where another claim than ``uid`` has it, or what its kind raises.

    That another claim has it is told first, and is waited for: a GPU that a claim has taken from the NVIDIA
    driver is none that NVML knows, and MIG mode, which keeps virtual machines away, ends with the last claim.
    """

    def refuse(held: HeldDevice) -> None:
        refuse_if_held(held, uid, journal.holders_of(held), kinds)

    try:
        found = kinds.of_name(device.name).locate(device, own, look)
    except (NvmlError, ClaimRefused, ClaimBlocked):
        refuse(HeldDevice.of(device, ""))
        raise
    refuse(found)
    return found


def with_board(found: HeldDevice, published: str | None) -> HeldDevice:
    """The device with the UUID of its board: as published where nobody can tell now.

    ``published`` is None where that was never seen. Raises HardwareChanged where the two differ.
    """
    if published is None:
        return found
    if not found.uuid:
        return replace(found, uuid=published)
    refuse_changed_board(replace(found, uuid=published), found.uuid)
    return found
