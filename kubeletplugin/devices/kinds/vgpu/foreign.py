"""Finds the vGPUs that somebody else made on GPUs of which vGPUs are made for claims: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from driver.devices.names import unshared_name
from driver.devices.node_state import BlockedPlacement
from driver.kinds.vgpu.names import parse_vgpu_name, profile_label
from kubeletplugin.devices.kinds.vgpu.record import record_of

if TYPE_CHECKING:
    from driver.hardware.gpu import Gpu
    from driver.hardware.vgpu_places import MadeVgpu, VgpuPlace
    from kubeletplugin.claims.journal.entry import HeldDevice


def foreign_vgpus(gpus: Iterable[Gpu], owners: Sequence[HeldDevice]) -> tuple[BlockedPlacement, ...]:
    """The GPUs with a vGPU that no claim accounts for; ``owners`` are the devices that claims hold.

    Such a vGPU blocks all of its GPU: no other profile can be made beside it, and nobody knows how many more
    its maker wants to make.
    """
    return tuple(
        BlockedPlacement(
            gpu.pci,
            None,
            "foreign-vgpu",
            f"a vGPU of type {made.type_id} on {place.pci} of GPU {gpu.pci} was made by somebody else",
        )
        for gpu in gpus
        if gpu.vgpu is not None
        for place in gpu.vgpu.places
        for made in place.made
        if not any(_is_of(held, gpu, place, made) for held in owners)
    )


def _is_of(held: HeldDevice, gpu: Gpu, place: VgpuPlace, made: MadeVgpu) -> bool:
    """Whether the vGPU is this device's; of a rebuilt entry only its place and its profile are known."""
    name = parse_vgpu_name(unshared_name(held.device))
    if name is None or name.pci != gpu.pci or gpu.vgpu is None:
        return False
    record = record_of(held)
    if record is not None:
        same = (record.type_id, record.uuid) == (made.type_id, made.uuid)
        return record.attempted and record.pci == place.pci and same
    labels = {one.id: profile_label(one.profile) for one in gpu.vgpu.types or ()}
    return gpu.vgpu.place(gpu.pci, name.slot) == place and labels.get(made.type_id) == name.profile
