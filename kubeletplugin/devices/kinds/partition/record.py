"""What the journal says about a partition of a claim, and how that is read and written."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace

from driver.devices.names import unshared_name
from driver.kinds.partition.names import PartitionName, parse_partition_name
from driver.nvml.mig import Placement
from kubeletplugin.claims.journal.entry import HeldDevice, Record


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A MIG partition of a claim: its placement, and how far its making has come."""

    # The profile's name, such as 1g.10gb, and the id that nvidia-smi mig -lgip shows for it.
    profile: str
    profile_id: int
    # The placement, in memory slices.
    start: int
    size: int
    # Journaled before the GPU instance is created, when its place was empty. From then on a GPU instance
    # with this profile and placement belongs to the claim, whether its id is known or not; before, it
    # belongs to somebody else.
    attempted: bool = False
    # The ids and the UUID (MIG-…) are added after each step. Another load of the driver ends them.
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    uuid: str = ""
    # The memory of the profile, 0 in entries from before it was recorded.
    memory_bytes: int = 0

    @property
    def placement(self) -> Placement:
        """Its place on the GPU."""
        return Placement(self.start, self.size)

    @property
    def unmade(self) -> PartitionRecord:
        """The record of the partition while it does not exist."""
        return replace(self, attempted=False, gpu_instance_id=None, compute_instance_id=None, uuid="")


_FIELDS = frozenset(one.name for one in fields(PartitionRecord))


def record_of(held: HeldDevice) -> PartitionRecord:
    """The record of a held partition."""
    # Unknown fields, perhaps of a newer version, are dropped.
    return PartitionRecord(**{name: value for name, value in held.record.items() if name in _FIELDS})


def written(record: PartitionRecord) -> Record:
    """The record as the journal's JSON."""
    return asdict(record)


def partition_name(held: HeldDevice) -> PartitionName | None:
    """The parsed name of a held device; None if it is not a partition."""
    return parse_partition_name(unshared_name(held.device))


def name_of(device: str) -> PartitionName:
    """The parsed name of a device that is known to be a partition; raises ValueError otherwise."""
    name = parse_partition_name(unshared_name(device))
    if name is None:
        raise ValueError(f"{device} has the kind of a partition, but its name is not that of one")
    return name
