"""Tells which GPUs somebody else has by vfio, so that they are handed to nobody meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.devices.node_state import BlockedPlacement
from kubeletplugin.devices.vfio.users import named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from driver.hardware.functions import PciView
    from kubeletplugin.claims.journal.entry import HeldDevice
    from kubeletplugin.devices.vfio.function_files import Users


def used_by_others(view: PciView, owners: Sequence[HeldDevice], users: Users) -> Iterator[BlockedPlacement]:
    """The GPUs that a process uses through vfio and that no claim has.

    One that is only bound to vfio, since the boot perhaps, is in nobody's way: a claim can have it as it is.
    """
    owned = {pci for held in owners for pci in held.gpus}
    for function in view.functions:
        if str(function.pci) in owned or not function.on_vfio:
            continue
        found = users(function)
        if found:
            yield BlockedPlacement(
                function.pci, None, "vfio-user", f"{named(found)} uses it through {function.driver}"
            )
