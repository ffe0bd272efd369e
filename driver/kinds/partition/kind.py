"""MIG partitions, of two kinds: those that an admin made, and those that are made for a claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driver.devices.device import MEMORY_SLICE
from driver.devices.region import Region
from driver.kinds.partition.field import MigField
from driver.kinds.partition.forms import with_made, with_static
from driver.kinds.partition.names import PartitionName, parse_partition_name, profile_slug
from driver.nvml.mig import Placement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from driver.hardware.gpu import Gpu, Inventory
    from driver.kinds.forms import Forms
    from driver.kinds.kind import Policies, PolicyField
    from driver.nvml.pci_address import PciAddress


class _PartitionKind:
    """What both kinds have in common."""

    form = "partitions"
    attribute_type = "mig"
    opaque = "MigDeviceConfig"
    described = "a partition"
    has_modes = False
    leaves_driver = False
    by_admin = False

    def parse(self, unshared: str) -> tuple[Region, ...] | None:
        """The first memory slice of the partition: how many it takes, its name does not tell."""
        name = self._name(unshared)
        return None if name is None else (name.region,)

    def stored(self, unshared: str, consumes: Mapping[str, int]) -> tuple[Region, ...]:
        """Its memory slices by the counters that it consumes; without counters, the first of them."""
        name = self._name(unshared)
        if name is None:
            return ()
        size = sum(counter.startswith(MEMORY_SLICE) for counter in consumes)
        return (Region(name.pci, Placement(name.start, max(1, size))),)

    def place(self, unshared: str, gpus: Mapping[PciAddress, Gpu]) -> tuple[Region, ...]:
        """Its memory slices, as its GPU knows the profile; all of the GPU where it does not."""
        name = self._name(unshared)
        if name is None:
            return ()
        gpu = gpus.get(name.pci)
        places = (
            placement
            for placed in (gpu.mig.profiles if gpu and gpu.mig else ())
            if profile_slug(placed.profile.name) == name.gpu_instance_profile
            for placement in placed.placements
            if placement.start == name.start
        )
        return (Region(name.pci, next(places, None)),)

    def title(self, unshared: str, attributes: Mapping[str, Any]) -> str:
        """The profile: as it is published, else as the name has it."""
        name = self._name(unshared)
        return str(attributes.get("profile") or (name.profile if name else unshared))

    def position(self, unshared: str) -> str:
        """The first memory slice."""
        name = self._name(unshared)
        return "" if name is None else f"at {name.start}"

    def _name(self, unshared: str) -> PartitionName | None:
        name = parse_partition_name(unshared)
        return name if name is not None and name.static == self.by_admin else None


class StaticKind(_PartitionKind):
    """Partitions that exist and that the driver neither makes nor destroys."""

    word = "static"
    by_admin = True
    policy_field: PolicyField | None = None

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        """The partitions of GPUs that an admin has cut, instead of the whole GPUs."""
        return so_far.changed(
            inventory, policies, lambda gpu, policy, forms: with_static(gpu, policy, forms, inventory)
        )


class MadeKind(_PartitionKind):
    """Partitions that are published before they exist: of a layout, or in all of their places."""

    word = "partition"
    policy_field: PolicyField | None = MigField()

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        """The partitions of a layout instead of the GPU, or dynamic ones beside it."""
        return so_far.changed(
            inventory, policies, lambda gpu, policy, forms: with_made(gpu, policy, forms, inventory)
        )


STATIC = StaticKind()
MADE = MadeKind()
