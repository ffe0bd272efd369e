"""Finds the GPUs that pods have from a device plugin, which may be gone already: pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from driver.devices.node_state import BlockedPlacement

if TYPE_CHECKING:
    from driver.hardware.gpu import Inventory

_REPLICA = "::"
"""What NVIDIA's device plugin writes between a UUID and a number, where it gives a device several times."""


def given_by_device_plugin(inventory: Inventory, device_ids: Collection[str]) -> tuple[BlockedPlacement, ...]:
    """The places of GPUs and partitions that containers have from a device plugin, which names them by UUID.

    A container keeps what it was given when its device plugin ends, and no scheduler counts it any more then.
    """
    return tuple(_blocked(inventory, {one.partition(_REPLICA)[0] for one in device_ids}))


def _blocked(inventory: Inventory, uuids: set[str]) -> Iterator[BlockedPlacement]:
    for gpu in inventory.gpus:
        if gpu.uuid in uuids:
            yield BlockedPlacement(
                gpu.pci, None, "device-plugin", f"a pod has GPU {gpu.pci} from a device plugin"
            )
        for partition in gpu.mig.partitions if gpu.mig else ():
            if partition.uuid in uuids:
                yield BlockedPlacement(
                    gpu.pci,
                    partition.gpu_instance.placement,
                    "device-plugin",
                    f"a pod has partition {partition.profile} of GPU {gpu.pci} from a device plugin",
                )
