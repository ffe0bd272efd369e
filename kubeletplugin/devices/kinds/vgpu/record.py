"""What the journal remembers of a vGPU of a claim, and how that is read and written."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, fields, replace

from driver.devices.names import unshared_name
from driver.hardware.vgpu_places import VgpuFramework
from driver.kinds.vgpu.names import VgpuName, parse_vgpu_name
from driver.nvml.pci_address import PciAddress
from kubeletplugin.claims.journal.entry import HeldDevice, Record

_UUIDS = uuid.UUID("5b1f8f64-6d44-5b6c-9f0e-3f8e1f0f4a53")


@dataclass(frozen=True, slots=True)
class VgpuRecord:
    """A vGPU that a claim was given: of which type, on which function, and how far its making has come.

    ``function`` is the address of its virtual function, or of the GPU where that has none. ``uuid`` is that
    of a mediated device, empty in the other framework. ``attempted`` is written before the kernel is told,
    when nothing lay there: from then on a vGPU of this type on this function, or of this UUID, is the
    claim's. ``hangs`` is written when the kernel did not answer: then it may come late. ``prefers_iommufd``
    and ``api_device`` say which nodes a container gets.
    """

    profile: str
    type_id: int
    memory_bytes: int
    framework: VgpuFramework
    function: str
    uuid: str = ""
    prefers_iommufd: bool = False
    api_device: bool = True
    attempted: bool = False
    hangs: bool = False

    @property
    def pci(self) -> PciAddress:
        """The address of its function."""
        return PciAddress.parse(self.function)

    @property
    def unmade(self) -> VgpuRecord:
        """The record of the vGPU while it does not exist."""
        return replace(self, attempted=False, hangs=False)


_FIELDS = frozenset(one.name for one in fields(VgpuRecord))


def record_of(held: HeldDevice) -> VgpuRecord | None:
    """What is remembered of a held vGPU; None in an entry that was rebuilt from its CDI spec."""
    if not held.record:
        return None
    return VgpuRecord(**{name: value for name, value in held.record.items() if name in _FIELDS})


def written(record: VgpuRecord | None) -> Record:
    """The record as the journal keeps it."""
    return {} if record is None else asdict(record)


def name_of(device: str) -> VgpuName:
    """What the name of a device says whose kind is a vGPU's."""
    name = parse_vgpu_name(unshared_name(device))
    if name is None:
        raise ValueError(f"{device} is no vGPU, and yet its kind is")
    return name


def uuid_for(claim_uid: str, device: str) -> str:
    """The UUID of a mediated device that is made for a claim: the same whenever it is asked for."""
    return str(uuid.uuid5(_UUIDS, f"{claim_uid} {device}"))
