"""What the journal keeps of GPUs that are passed through: JSON in the record of a held device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kubeletplugin.claims.journal.entry import HeldDevice, Record
from kubeletplugin.devices.vfio.record import FUNCTIONS


@dataclass(frozen=True, slots=True)
class PassthroughRecord:
    """What is to be remembered of a device.

    ``group`` is the number of its IOMMU group. ``device_ids`` are the PCI device ids of its GPUs, in the
    order of the device's name: what tells one board from another while no driver has it that knows its UUID.
    ``iommufd`` is whether a container gets it through IOMMUFD where there is one, ``api_device`` whether it
    gets the node of the IOMMU as well. ``persistent`` are the GPUs whose persistence mode has to be put back.
    ``functions`` is what the binding of the group remembers (devices.vfio.record), empty while none of
    it is changed.
    """

    group: int
    device_ids: tuple[int, ...] = ()
    iommufd: bool = False
    api_device: bool = True
    persistent: tuple[str, ...] = ()
    functions: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_begun(self) -> bool:
        """Whether there may be something to take back."""
        return bool(self.persistent or self.functions)

    @property
    def unmade(self) -> PassthroughRecord:
        """The record when nothing is made."""
        return replace(self, persistent=(), functions=())


def record_of(held: HeldDevice) -> PassthroughRecord | None:
    """What the journal has of a device; None for an entry that was rebuilt, which has nothing."""
    return read(held.record) if "group" in held.record else None


def read(record: Record) -> PassthroughRecord:
    """A record as the journal has it."""
    return PassthroughRecord(
        int(record["group"]),
        tuple(int(one) for one in record.get("device_ids", ())),
        bool(record.get("iommufd", False)),
        bool(record.get("api_device", True)),
        tuple(str(one) for one in record.get("persistent", ())),
        tuple(record.get(FUNCTIONS, ())),
    )


def written(record: PassthroughRecord) -> Record:
    """The record as the journal has it."""
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
