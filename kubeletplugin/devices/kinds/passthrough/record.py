"""What the journal says about GPUs that are passed through: JSON in the record of a held device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kubeletplugin.claims.journal.entry import HeldDevice, Record
from kubeletplugin.devices.vfio.record import FUNCTIONS


@dataclass(frozen=True, slots=True)
class PassthroughRecord:
    """What has to be remembered of a device."""

    # The number of its IOMMU group.
    group: int
    # The PCI device ids of its GPUs, in the order of the device's name. They tell models of boards apart
    # while no driver is bound that can read a UUID.
    device_ids: tuple[int, ...] = ()
    # Whether a container gets it by IOMMUFD if the kernel has that.
    iommufd: bool = False
    # Whether a container gets the node of the IOMMU as well.
    api_device: bool = True
    # The GPUs whose persistence mode has to be turned on again.
    persistent: tuple[str, ...] = ()
    # The record of the binding (devices.vfio.record), empty while nothing is changed.
    functions: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_begun(self) -> bool:
        """Whether there may be something to undo."""
        return bool(self.persistent or self.functions)

    @property
    def unmade(self) -> PassthroughRecord:
        """The record when nothing is made."""
        return replace(self, persistent=(), functions=())


def record_of(held: HeldDevice) -> PassthroughRecord:
    """The record of a device."""
    return read(held.record)


def read(record: Record) -> PassthroughRecord:
    """Read a record from the journal's JSON."""
    return PassthroughRecord(
        int(record["group"]),
        tuple(int(one) for one in record.get("device_ids", ())),
        bool(record.get("iommufd", False)),
        bool(record.get("api_device", True)),
        tuple(str(one) for one in record.get("persistent", ())),
        tuple(record.get(FUNCTIONS, ())),
    )


def written(record: PassthroughRecord) -> Record:
    """The record as the journal's JSON."""
    plain: dict[str, Any] = {
        "group": record.group,
        "device_ids": list(record.device_ids),
        "iommufd": record.iommufd,
        "api_device": record.api_device,
    }
    if record.persistent:
        plain["persistent"] = list(record.persistent)
    if record.functions:
        plain[FUNCTIONS] = [dict(one) for one in record.functions]
    return plain
