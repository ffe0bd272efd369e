"""Refuses a device that another claim holds, or that takes a part of what another claim holds: pure.

One rule for all kinds: two devices exclude each other where they take the same of a GPU. A force-deleted pod
or two schedulers can hand one device out twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from driver.devices.names import unshared_name
from driver.devices.region import overlap
from driver.errors import DeviceHeld
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.devices.kinds.kind import HeldKinds


def refuse_if_held(device: HeldDevice, claim_uid: str, holders: Iterable[Entry], kinds: HeldKinds) -> None:
    """Raise DeviceHeld when another claim has the device, or part of it, for itself; the log alone names it.

    ``holders`` are the claims with something on the GPUs of the device. Claims with admin access stand beside
    any other, and shares of one device beside each other.
    """
    if device.admin_access:
        return
    for entry in holders:
        for held in entry.devices:
            if entry.uid != claim_uid and not held.admin_access and _collide(device, held, kinds):
                same = held.device == device.device
                how = "is" if same else f"takes a part of {device.device} and is"
                raise DeviceHeld(
                    f"device {held.device} {how} still held by another claim",
                    "it is let go when that claim's pod has ended",
                    for_log=f"held by claim {entry.owner}",
                    holders=(entry.uid,),
                )


def _collide(device: HeldDevice, held: HeldDevice, kinds: HeldKinds) -> bool:
    """Whether the two cannot be there at once."""
    if device.device == held.device:
        is_shared = unshared_name(device.device) != device.device
        return not is_shared
    return overlap(kinds.of(device).occupies(device), kinds.of(held).occupies(held))
