"""The vGPUs of a host that claims hold: each is made at prepare, in the slot of its GPU that its name says.

A step is written down before the kernel is told anything and after. So whoever comes next, after a crash or a
failure, knows what is the claim's and what is somebody else's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driver.claims.opaque import VfioDeviceConfig
from driver.errors import ClaimBlocked, ClaimRefused
from driver.hardware.inventory import Discovery
from driver.hardware.pci import linked_name
from driver.hardware.pci_view import function_folder, vfio_device_of
from driver.hardware.vgpu_places import VgpuHost, read_vgpu_host
from driver.kinds.kind import OfferedKind
from driver.kinds.vgpu.kind import VGPU
from driver.kinds.vgpu.names import profile_label
from kubeletplugin.cdi.spec import Edits
from kubeletplugin.host.vfio_nodes import VfioNodes
from kubeletplugin.journal.entry import Entry, HeldDevice, Record
from kubeletplugin.kinds.vgpu.foreign import foreign_vgpus
from kubeletplugin.kinds.vgpu.making import Vgpus
from kubeletplugin.kinds.vgpu.record import VgpuRecord, name_of, record_of, uuid_for, written

if TYPE_CHECKING:
    from driver.devices.device import AttributeValue
    from driver.devices.health import Health
    from driver.devices.node_state import BlockedPlacement
    from driver.devices.region import Region
    from driver.hardware.gpu import Inventory
    from driver.kinds.vgpu.names import VgpuName
    from driver.nvml.pci_address import PciAddress
    from kubeletplugin.host.device_nodes import DeviceNode
    from kubeletplugin.kinds.kind import Look, Note
    from kubeletplugin.wire.planned import PlannedDevice


class HeldVgpu:
    """The vGPUs that claims have made."""

    offered: OfferedKind = VGPU

    def __init__(self, discovery: Discovery, sysfs_root: Path, vgpus: Vgpus, nodes: VfioNodes) -> None:
        self._discovery = discovery
        self._sysfs_root = sysfs_root
        self._vgpus = vgpus
        self._nodes = nodes

    def locate(self, device: PlannedDevice, own: HeldDevice | None, look: Look) -> HeldDevice:
        """Its type and its function; what an earlier try has begun is kept.

        Raises ClaimRefused for a profile that the GPU does not have, ClaimBlocked where its virtual function
        is not there.
        """
        name = name_of(device.name.device)
        uuid = look.identity(name.pci).uuid
        known = None if own is None else record_of(own)
        if known is None or not known.attempted:
            known = _configured(self._located(name), device)
        return HeldDevice.of(device, uuid, written(known))

    def occupies(self, held: HeldDevice) -> tuple[Region, ...]:
        """Its slot."""
        return (name_of(held.device).region,)

    def changes(self, held: HeldDevice) -> bool:
        """Whether the claim has the vGPU made; who looks on by admin access makes none."""
        return not held.admin_access

    def make(self, entry: Entry, index: int, look: Look, note: Note) -> Record:
        """Make the vGPU, unless another request of the claim has."""
        held = entry.devices[index]
        record = record_of(held)
        if record is None or held.admin_access:
            return held.record
        twin = next((one for one in entry.devices[:index] if one.device == held.device), None)
        if twin is not None:
            return twin.record
        record = self._named(record, entry.uid, held.device)
        return written(self._vgpus.make(record, lambda step, record: note(step, written(record))))

    def intact(self, held: HeldDevice) -> bool:
        """Whether it is there as it was made."""
        record = record_of(held)
        return record is None or held.admin_access or self._vgpus.is_there(record)

    def is_made(self, held: HeldDevice) -> bool:
        """Whether its making was begun; of a rebuilt entry nobody knows, so it was."""
        record = record_of(held)
        return not held.admin_access and (record is None or record.attempted)

    def unmake(self, entry: Entry, index: int, note: Note) -> Record:
        """Take it back; what is gone already is fine. Raises InstanceInUse while a virtual machine has it."""
        held = entry.devices[index]
        record = record_of(held)
        if record is None:
            located = self._located(name_of(held.device))
            record = self._named(replace(located, attempted=True), entry.uid, held.device)
        note("releasing", written(record))
        self._vgpus.destroy(record, lambda step, record: note(step, written(record)))
        return written(record.unmade)

    def unmade(self, held: HeldDevice) -> Record:
        """What it is, and nothing of its making."""
        record = record_of(held)
        return written(None if record is None else record.unmade)

    def edits(self, held: HeldDevice, look: Look) -> Edits:
        """The nodes by which a virtual machine's monitor reaches it, and none of the NVIDIA driver's files.

        Raises NodeIncomplete, ClaimBlocked while it is not made. Who looks on by admin access gets nothing: a
        vGPU cannot be opened twice.
        """
        if held.admin_access:
            return Edits(needs_driver=False)
        record = record_of(held)
        if record is None or not record.attempted:
            raise ClaimBlocked(f"the vGPU {held.device} is not made yet", "the kubelet tries again")
        device = self._vfio_device(record) if record.prefers_iommufd else None
        own = self._node(record, device)
        api = (self._nodes.api(iommufd=device is not None),) if record.api_device else ()
        return Edits((own, *api), needs_driver=False)

    def cuda_uuid(self, held: HeldDevice) -> str:
        """Nothing: no CUDA of this machine knows it."""
        return ""

    def memory_bytes(self, held: HeldDevice) -> int:
        """What its profile has."""
        record = record_of(held)
        return 0 if record is None else record.memory_bytes

    def health(self, held: HeldDevice, gpus: Mapping[PciAddress, Health]) -> Health | None:
        """That of its GPU."""
        return gpus.get(name_of(held.device).pci)

    def status(self, held: HeldDevice) -> Mapping[str, Any]:
        """The UUID of a mediated device, which no slice tells."""
        return {name: value for name, value in self.metadata(held).items() if name == "mdevUUID"}

    def metadata(self, held: HeldDevice) -> Mapping[str, AttributeValue]:
        """What KubeVirt looks for: the UUID of a mediated device, or the address of a virtual function."""
        record = record_of(held)
        if record is None or not record.attempted:
            return {}
        if record.uuid:
            return {"mdevUUID": record.uuid}
        return {"resource.kubernetes.io/pciBusID": record.function}

    def foreign(self, inventory: Inventory, owners: Sequence[HeldDevice]) -> Iterable[BlockedPlacement]:
        """The vGPUs that no claim accounts for."""
        return foreign_vgpus(inventory.gpus, owners)

    def _located(self, name: VgpuName) -> VgpuRecord:
        """The record of a vGPU that is not made; raises ClaimRefused, ClaimBlocked, NvmlError."""
        types = self._discovery.on_gpu(name.pci, lambda device, watch: watch("vgpu_types", device.vgpu_types))
        kind = next((one for one in types if profile_label(one.profile) == name.profile), None)
        if kind is None:
            raise ClaimRefused(
                f"GPU {name.pci} has no vGPU profile {name.profile}",
                "delete the pod, so that it is scheduled anew with a device that exists",
            )
        host: VgpuHost = read_vgpu_host(self._sysfs_root, name.pci, types)
        place = host.place(name.pci, name.slot) if host.places else None
        if host.framework is None or place is None:
            raise ClaimBlocked(
                f"GPU {name.pci} has no virtual function {name.slot}",
                f"make its virtual functions: /usr/lib/nvidia/sriov-manage -e {name.pci}",
            )
        return VgpuRecord(kind.profile, kind.id, kind.memory_bytes, host.framework, str(place.pci))

    def _named(self, record: VgpuRecord, claim_uid: str, device: str) -> VgpuRecord:
        """The record with the UUID of its mediated device, where it is one."""
        if record.framework != "mdev" or record.uuid:
            return record
        return replace(record, uuid=uuid_for(claim_uid, device))

    def _vfio_device(self, record: VgpuRecord) -> str | None:
        return vfio_device_of(self._vfio_folder(record))

    def _node(self, record: VgpuRecord, device: str | None) -> DeviceNode:
        if device is not None:
            return self._nodes.device(device)
        group = linked_name(self._vfio_folder(record) / "iommu_group")
        if group is None or not group.isdecimal():
            raise ClaimRefused(
                f"no IOMMU guards {record.function}, so it is given to no virtual machine",
                "turn the IOMMU on in the firmware and the kernel's command line",
            )
        return self._nodes.group(int(group))

    def _vfio_folder(self, record: VgpuRecord) -> Path:
        """Where sysfs shows the vfio device: on the virtual function, or on the mediated device."""
        return function_folder(self._sysfs_root, record.pci) / record.uuid


def _configured(record: VgpuRecord, device: PlannedDevice) -> VgpuRecord:
    """The record with what the claim's configuration says of nodes; without one, all that QEMU needs."""
    config = device.config
    if not isinstance(config, VfioDeviceConfig):
        return record
    return replace(
        record,
        prefers_iommufd=config.backend_policy == "PreferIommuFD",
        api_device=config.enable_api_device,
    )
