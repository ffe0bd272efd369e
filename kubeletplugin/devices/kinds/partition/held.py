"""What both kinds of partitions have in common on the node, once a partition is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from driver.errors import ClaimBlocked
from kubeletplugin.claims.cdi.spec import Edits
from kubeletplugin.devices.host.gpu_nodes import GpuNodes
from kubeletplugin.devices.kinds.found import DriverKind
from kubeletplugin.devices.kinds.partition.making import Partitions
from kubeletplugin.devices.kinds.partition.record import name_of, record_of

if TYPE_CHECKING:
    from driver.devices.device import AttributeValue
    from driver.devices.region import Region
    from driver.health.verdict import Health
    from driver.nvml.pci_address import PciAddress
    from kubeletplugin.claims.journal.entry import HeldDevice
    from kubeletplugin.devices.kinds.kind import Look


class HeldPartition(DriverKind):
    """Partitions that exist, or are about to."""

    def __init__(self, partitions: Partitions, nodes: GpuNodes) -> None:
        self._partitions = partitions
        self._nodes = nodes

    def occupies(self, held: HeldDevice) -> tuple[Region, ...]:
        """Its place; of a rebuilt entry's partition only the first memory slice is known."""
        name, record = name_of(held.device), record_of(held)
        return (name.region if record is None else name.at(record.placement),)

    def intact(self, held: HeldDevice) -> bool:
        """Whether the instances of its record are there; raises NvmlError."""
        record = record_of(held)
        return record is None or self._partitions.exists(name_of(held.device).pci, record)

    def edits(self, held: HeldDevice, look: Look) -> Edits:
        """What opens the partition, and nothing else of its GPU; raises ClaimBlocked while it is not made."""
        record = record_of(held)
        if record is None or record.gpu_instance_id is None or record.compute_instance_id is None:
            raise ClaimBlocked(f"the partition {held.device} is not made yet", "the kubelet tries again")
        minor = look.identity(name_of(held.device).pci).minor
        return Edits(self._nodes.instance(minor, record.gpu_instance_id, record.compute_instance_id))

    def cuda_uuid(self, held: HeldDevice) -> str:
        """The UUID of the MIG device, empty while it is not made."""
        record = record_of(held)
        return "" if record is None else record.uuid

    def memory_bytes(self, held: HeldDevice) -> int:
        """What its profile has."""
        record = record_of(held)
        return 0 if record is None else record.memory_bytes

    def health(self, held: HeldDevice, gpus: Mapping[PciAddress, Health]) -> Health | None:
        """That of its GPU."""
        return gpus.get(name_of(held.device).pci)

    def status(self, held: HeldDevice) -> Mapping[str, Any]:
        """Its GPU and its profile, once it is there: the slice tells no UUID of what did not exist."""
        record = record_of(held)
        if record is None or not record.uuid:
            return {}
        return {"parentUUID": held.uuid, "profile": record.profile}

    def metadata(self, held: HeldDevice) -> Mapping[str, AttributeValue]:
        """Where its GPU is on the bus, and what it is, which is known without any slice, too."""
        told: dict[str, AttributeValue] = {"resource.kubernetes.io/pciBusID": held.pci}
        return told | {name: str(value) for name, value in self.status(held).items() if value}
