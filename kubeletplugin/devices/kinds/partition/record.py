"""What the journal remembers of a partition of a claim, and how that is read and written."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace

from driver.devices.names import unshared_name
from driver.kinds.partition.names import PartitionName, parse_partition_name
from driver.nvml.mig import Placement
from kubeletplugin.claims.journal.entry import HeldDevice, Record


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A MIG partition that a claim was given: where it is to lie, and how far its making has come.

    ``start`` and ``size`` are memory slices. ``attempted`` is written before the GPU instance is created,
    when nothing lay at its place: from then on a GPU instance of this profile at exactly this place is the
    claim's, its id known or not. Until then whatever lies there is somebody else's. The ids and the UUID
    (``MIG-…``) follow as each step is done, and mean something only within the era of the entry.
    ``memory_bytes`` is what the profile has, 0 in entries that were written before it was recorded.
    """

    profile: str
    profile_id: int
    start: int
    size: int
    attempted: bool = False
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    uuid: str = ""
    memory_bytes: int = 0

    @property
    def placement(self) -> Placement:
        """Where it lies."""
        return Placement(self.start, self.size)

    @property
    def unmade(self) -> PartitionRecord:
        """The record of the partition while it does not exist."""
        return replace(self, attempted=False, gpu_instance_id=None, compute_instance_id=None, uuid="")


_FIELDS = frozenset(one.name for one in fields(PartitionRecord))


def record_of(held: HeldDevice) -> PartitionRecord | None:
    """What is remembered of a held partition; None in an entry that was rebuilt from its CDI spec."""
    if not held.record:
        return None
    return PartitionRecord(**{name: value for name, value in held.record.items() if name in _FIELDS})


def written(record: PartitionRecord | None) -> Record:
    """The record as the journal keeps it."""
    return {} if record is None else asdict(record)


def partition_name(held: HeldDevice) -> PartitionName | None:
    """What the name of a held device says, where it is a partition's."""
    return parse_partition_name(unshared_name(held.device))


def name_of(device: str) -> PartitionName:
    """What the name of a device says whose kind is a partition's."""
    name = parse_partition_name(unshared_name(device))
    if name is None:
        raise ValueError(f"{device} is no partition, and yet its kind is")
    return name
