"""Finds the GPU instances that somebody else made where partitions could be made for claims: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from driver.devices.node_state import BlockedPlacement
from driver.nvml.mig import GpuInstance, Placement
from kubeletplugin.devices.kinds.partition.record import partition_name, record_of

if TYPE_CHECKING:
    from driver.hardware.gpu import Gpu
    from kubeletplugin.claims.journal.entry import HeldDevice


def foreign_instances(gpus: Iterable[Gpu], owners: Sequence[HeldDevice]) -> tuple[BlockedPlacement, ...]:
    """The GPU instances that no claim accounts for; ``owners`` are the devices that claims hold.

    They may have a device more than once, as it was before and after the look at the hardware: an instance
    that was made or destroyed meanwhile is the claim's in one of them.
    """
    return tuple(
        BlockedPlacement(
            gpu.pci,
            instance.placement,
            "foreign-instance",
            f"GPU instance {instance.id} of GPU {gpu.pci} at {_place(instance.placement)} was made by "
            "somebody else",
        )
        for gpu in gpus
        if gpu.mig
        for instance in gpu.mig.instances
        if not any(_is_of(held, gpu, instance) for held in owners)
    )


def _place(placement: Placement) -> str:
    last = placement.start + placement.size - 1
    return f"memory slice {last}" if placement.size == 1 else f"memory slices {placement.start} to {last}"


def _is_of(held: HeldDevice, gpu: Gpu, instance: GpuInstance) -> bool:
    """Whether the instance is this device's: a part of a static instance is not its owner."""
    name = partition_name(held)
    if name is None or name.pci != gpu.pci or name.static:
        return False
    record = record_of(held)
    if record is None:
        return name.start == instance.placement.start
    same_place = (record.profile_id, record.placement) == (instance.profile_id, instance.placement)
    return record.attempted and same_place
