"""vGPUs of a host, each of a profile of NVIDIA's in a slot of its GPU: made when a claim is prepared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from driver.kinds.vgpu.devices import PROFILE
from driver.kinds.vgpu.field import FORM, VgpuField
from driver.kinds.vgpu.forms import with_vgpus
from driver.kinds.vgpu.names import parse_vgpu_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from driver.devices.region import Region
    from driver.hardware.gpu import Gpu, Inventory
    from driver.kinds.forms import Forms
    from driver.kinds.kind import Policies, PolicyField
    from driver.nvml.pci_address import PciAddress


class VgpuKind:
    """vGPUs that are published before they exist."""

    word = "vgpu"
    form = FORM
    attribute_type = "vgpu"
    opaque = "VfioDeviceConfig"
    described = "a vGPU"
    by_admin = False
    has_modes = False
    leaves_driver = False
    policy_field: PolicyField | None = VgpuField()

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        """The vGPUs of GPUs that the rules name profiles for."""
        gpus = {
            gpu.pci: with_vgpus(gpu, policies[gpu.pci], so_far.gpus[gpu.pci], inventory)
            for gpu in inventory.gpus
            if gpu.pci in policies and gpu.pci in so_far.gpus and not so_far.gpus[gpu.pci].doubtful
        }
        return replace(so_far, gpus={**so_far.gpus, **gpus})

    def parse(self, unshared: str) -> tuple[Region, ...] | None:
        """Its slot."""
        name = parse_vgpu_name(unshared)
        return None if name is None else (name.region,)

    def stored(self, unshared: str, consumes: Mapping[str, int]) -> tuple[Region, ...]:
        """Its slot, whatever it consumes."""
        return self.parse(unshared) or ()

    def place(self, unshared: str, gpus: Mapping[PciAddress, Gpu]) -> tuple[Region, ...]:
        """Its slot."""
        return self.parse(unshared) or ()

    def title(self, unshared: str, attributes: Mapping[str, Any]) -> str:
        """The profile: as it is published, else as the name has it."""
        name = parse_vgpu_name(unshared)
        return str(attributes.get(PROFILE) or (name.profile if name else unshared))

    def position(self, unshared: str) -> str:
        """The slot."""
        name = parse_vgpu_name(unshared)
        return "" if name is None else f"slot {name.slot}"


VGPU = VgpuKind()
