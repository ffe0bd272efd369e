"""What the journal says about a vGPU of a claim, and how that is read and written."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, fields, replace

from driver.devices.names import unshared_name
from driver.hardware.vgpu_places import VgpuFramework
from driver.kinds.vgpu.names import VgpuName, parse_vgpu_name
from driver.nvml.pci_address import PciAddress
from kubeletplugin.claims.journal.entry import HeldDevice, Record

_NAMESPACE = uuid.UUID("5b1f8f64-6d44-5b6c-9f0e-3f8e1f0f4a53")
"""Must never change: an older plugin finds a vGPU by the UUID that is made from it."""


@dataclass(frozen=True, slots=True)
class VgpuRecord:
    """A vGPU of a claim: its type, its function, and how far its making has come."""

    profile: str
    type_id: int
    memory_bytes: int
    framework: VgpuFramework
    # The PCI address of its virtual function, or of the GPU if that has none.
    function: str
    # The UUID of a mediated device, empty in the other framework.
    uuid: str = ""
    # The claim's configuration of the device nodes that a container gets.
    prefers_iommufd: bool = False
    api_device: bool = True
    # Journaled before the kernel is called, when the place was empty. From then on a vGPU of this type on
    # this function, or with this UUID, belongs to the claim.
    attempted: bool = False
    # Journaled if the kernel did not answer: the vGPU may appear later.
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


def record_of(held: HeldDevice) -> VgpuRecord:
    """The record of a held vGPU."""
    # Unknown fields, perhaps of a newer version, are dropped.
    return VgpuRecord(**{name: value for name, value in held.record.items() if name in _FIELDS})


def written(record: VgpuRecord) -> Record:
    """The record as the journal's JSON."""
    return asdict(record)


def name_of(device: str) -> VgpuName:
    """The parsed name of a device that is known to be a vGPU; raises ValueError otherwise."""
    name = parse_vgpu_name(unshared_name(device))
    if name is None:
        raise ValueError(f"{device} has the kind of a vGPU, but its name is not that of one")
    return name


def uuid_for(claim_uid: str, device: str) -> str:
    """The UUID of a mediated device for a claim, always the same for the same claim and device."""
    return str(uuid.uuid5(_NAMESPACE, f"{claim_uid} {device}"))
