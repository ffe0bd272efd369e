"""The vGPUs of a host that claims hold: each is made at prepare, in the slot of its GPU that its name says.

Each step is journaled before the kernel is called and after. So the next call, after a crash or a failure,
knows what belongs to the claim and what to somebody else.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from driver.claims.opaque import VfioDeviceConfig
from driver.devices.device import AttributeValue
from driver.devices.names import unshared_name
from driver.devices.node_state import BlockedPlacement
from driver.devices.region import Region
from driver.errors import ClaimBlocked, ClaimRefused, DriverError, NodeIncomplete
from driver.hardware.gpu import Gpu, Inventory
from driver.hardware.pci import linked_name
from driver.hardware.pci_view import function_folder, read_function, vfio_device_of
from driver.hardware.vgpu_places import (
    CURRENT_TYPE,
    MDEV_TYPES,
    MadeVgpu,
    VgpuHost,
    VgpuPlace,
    creatable_on,
    made_on,
    read_vgpu_host,
)
from driver.health.verdict import Health
from driver.kinds.kind import OfferedKind
from driver.kinds.vgpu.kind import VGPU
from driver.kinds.vgpu.names import VgpuName, parse_vgpu_name, profile_label
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.cdi.spec import Edits
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, Record
from kubeletplugin.devices.host.gpu_nodes import DeviceNode, VfioNodes
from kubeletplugin.devices.host.kernel import Kernel
from kubeletplugin.devices.kinds.kind import HardwareNow, NodeKind, NodePorts, Note
from kubeletplugin.devices.kinds.vgpu.record import VgpuRecord, name_of, record_of, uuid_for, written
from kubeletplugin.devices.vfio.function_files import Users
from kubeletplugin.devices.vfio.users import FunctionInUse, FunctionNotMoved, User, in_doubt, named
from kubeletplugin.kubelet.wire.planned import PlannedDevice

_PCI_VARIABLE, _MDEV_VARIABLE = "PCI_RESOURCE_GPU_NVIDIA_COM_", "MDEV_PCI_RESOURCE_GPU_NVIDIA_COM_"
"""The prefixes under which KubeVirt looks for devices, as device plugins set them (pkg/virt-launcher)."""


_WRITE_SECONDS = 20.0
_NOTHING_THERE = frozenset({errno.EPERM, errno.ENOENT, errno.ENODEV})
"""The error numbers for destroying a vGPU that does not exist; NVIDIA's module answers EPERM."""

_BUSY = frozenset({errno.EPERM, errno.EBUSY})
_SEE_LOG = "look for messages of nvidia-vgpu-mgr and of the nvidia module in the node's log"

_log = get_logger("vgpus")


class HeldVgpu(NodeKind):
    """The vGPUs that are made for claims."""

    offered: OfferedKind = VGPU
    condition = ("VgpuMade", "The vGPU exists, and a virtual machine can have it.")

    def __init__(self, node: NodePorts) -> None:
        super().__init__(node)
        self._nodes = VfioNodes(node.driver)
        self._vgpus = Vgpus(node.sysfs_root, node.kernel, node.users)

    def locate(self, device: PlannedDevice, own: HeldDevice | None, hardware: HardwareNow) -> HeldDevice:
        """Its type and its function, or the record of an earlier try that has begun.

        Raises ClaimRefused for admin access and for a profile that the GPU does not have, ClaimBlocked if its
        virtual function does not exist.
        """
        if device.allocated.admin_access:
            raise ClaimRefused(
                f"{device.allocated.device} is for a virtual machine, and admin access to it is not possible",
                "ask for it without adminAccess",
            )
        name = name_of(device.name.device)
        uuid = hardware.identity(name.pci).uuid
        known = None if own is None else record_of(own)
        # Before the first attempt the configuration of this prepare counts.
        if known is None or not known.attempted:
            known = _configured(self._located(name), device)
        return HeldDevice.of(device, uuid, written(known))

    @staticmethod
    def occupies(held: HeldDevice) -> tuple[Region, ...]:
        """Its slot."""
        return (name_of(held.device).region,)

    def changes(self, held: HeldDevice) -> bool:
        """Always: a vGPU is made."""
        return True

    def make(self, entry: Entry, index: int, hardware: HardwareNow, note: Note) -> Record:
        """Make the vGPU, unless another request of the same claim has."""
        held = entry.devices[index]
        # Several requests of one claim may name the same vGPU; the first of them makes it.
        twin = next((one for one in entry.devices[:index] if one.device == held.device), None)
        if twin is not None:
            return twin.record
        record = self._named(record_of(held), entry.uid, held.device)
        return written(self._vgpus.make(record, note))

    def intact(self, held: HeldDevice) -> bool:
        """Whether it exists as it was made."""
        return self._vgpus.is_there(record_of(held))

    @staticmethod
    def is_made(held: HeldDevice) -> bool:
        """Whether making it was started."""
        return record_of(held).attempted

    def unmake(self, entry: Entry, index: int, note: Note) -> Record:
        """Destroy it, unless it is gone already; raises FunctionInUse while a virtual machine has it."""
        record = record_of(entry.devices[index])
        note("releasing", written(record))
        self._vgpus.destroy(record, note)
        return written(record.unmade)

    def unmade(self, held: HeldDevice) -> Record:
        """Its type and place, without the steps of making it."""
        return written(record_of(held).unmade)

    def edits(self, held: HeldDevice, hardware: HardwareNow) -> Edits:
        """The nodes by which a virtual machine monitor opens it, and a variable that names it.

        The NVIDIA driver's files are left out. Raises NodeIncomplete, and ClaimBlocked if it is not made.
        """
        record = record_of(held)
        if not self._vgpus.is_there(record):
            raise ClaimBlocked(f"the vGPU {held.device} is not made yet", "the kubelet tries again")
        variable = _MDEV_VARIABLE if record.uuid else _PCI_VARIABLE
        name = held.device.upper().replace("-", "_")
        value = f"{variable}{name}={record.uuid or record.function}"
        return Edits(self._opening(record), (value,), needs_driver=False)

    @staticmethod
    def cuda_uuid(held: HeldDevice) -> str:
        """Empty: CUDA on this node cannot use it."""
        return ""

    def memory_bytes(self, held: HeldDevice) -> int:
        """The memory of its profile."""
        return record_of(held).memory_bytes

    def health(self, held: HeldDevice, gpus: Mapping[PciAddress, Health]) -> Health | None:
        """The health of its GPU."""
        return gpus.get(name_of(held.device).pci)

    def status(self, held: HeldDevice) -> Mapping[str, Any]:
        """Its profile, and the mediated device or the virtual function for the virtual machine."""
        record = record_of(held)
        if not record.attempted:
            return {}
        made = {"mdevUUID": record.uuid} if record.uuid else {"pciBusID": record.function}
        return {"profile": record.profile, **made}

    def metadata(self, held: HeldDevice) -> Mapping[str, AttributeValue]:
        """What KubeVirt reads: the UUID of a mediated device, or the address of a virtual function."""
        record = record_of(held)
        if not record.attempted:
            return {}
        if record.uuid:
            return {"profile": record.profile, "mdevUUID": record.uuid}
        return {"profile": record.profile, "resource.kubernetes.io/pciBusID": record.function}

    def foreign(self, inventory: Inventory, owners: Sequence[HeldDevice]) -> Iterable[BlockedPlacement]:
        """The vGPUs that belong to no claim."""
        return _foreign_vgpus(inventory.gpus, owners)

    def _located(self, name: VgpuName) -> VgpuRecord:
        """The record of a vGPU that is not made yet; raises ClaimRefused, ClaimBlocked, NvmlError."""
        discovery = self._node.discovery
        types = discovery.on_gpu(name.pci, lambda device, watch: watch("vgpu_types", device.vgpu_types))
        # The name of a device has the profile's label, not the id of the type.
        kind = next((one for one in types if profile_label(one.profile) == name.profile), None)
        if kind is None:
            raise ClaimRefused(
                f"GPU {name.pci} has no vGPU profile {name.profile}",
                "delete the pod, so that it is scheduled again with a device that exists",
            )
        # Without virtual functions there are no places to make a vGPU in.
        host: VgpuHost = read_vgpu_host(self._node.sysfs_root, name.pci, types)
        place = host.place(name.pci, name.slot) if host.places else None
        if host.framework is None or place is None:
            raise ClaimBlocked(
                f"GPU {name.pci} has no virtual function {name.slot}",
                f"make its virtual functions: /usr/lib/nvidia/sriov-manage -e {name.pci}",
            )
        return VgpuRecord(kind.profile, kind.id, kind.memory_bytes, host.framework, str(place.pci))

    def _named(self, record: VgpuRecord, claim_uid: str, device: str) -> VgpuRecord:
        """The record with the UUID of its mediated device, if it is one."""
        if record.framework != "mdev" or record.uuid:
            return record
        return replace(record, uuid=uuid_for(claim_uid, device))

    def _opening(self, record: VgpuRecord) -> tuple[DeviceNode, ...]:
        """The nodes that open it, by IOMMUFD if that is preferred and available; raises NodeIncomplete."""
        if record.prefers_iommufd:
            names = [self._vgpus.vfio_device(record)]
            found = self._nodes.of_iommufd(names, with_api=record.api_device)
            if found is not None:
                return found
        number = self._vgpus.iommu_group(record)
        if number is None:
            raise NodeIncomplete(
                f"{record.function} is not behind an IOMMU, so no virtual machine gets it",
                "turn on the IOMMU in the firmware and on the kernel's command line",
            )
        return self._nodes.of_group(number, with_api=record.api_device)


def _configured(record: VgpuRecord, device: PlannedDevice) -> VgpuRecord:
    """The record with the claim's configuration for device nodes."""
    config = device.config if isinstance(device.config, VfioDeviceConfig) else VfioDeviceConfig()
    return replace(
        record,
        prefers_iommufd=config.backend_policy == "PreferIommuFD",
        api_device=config.enable_api_device,
    )


def _foreign_vgpus(gpus: Iterable[Gpu], owners: Sequence[HeldDevice]) -> tuple[BlockedPlacement, ...]:
    """The GPUs with a vGPU that belongs to no claim; ``owners`` are the devices that claims hold.

    Such a vGPU blocks its whole GPU: no other profile can be made beside it, and its maker may want to make
    more of them.
    """
    return tuple(
        BlockedPlacement(
            gpu.pci,
            None,
            "foreign-vgpu",
            f"a vGPU of type {made.type_id} on {place.pci} of GPU {gpu.pci} was not made by this driver",
        )
        for gpu in gpus
        if gpu.vgpu is not None
        for place in gpu.vgpu.places
        for made in place.made
        if not any(_is_of(held, gpu, place, made) for held in owners)
    )


def _is_of(held: HeldDevice, gpu: Gpu, place: VgpuPlace, made: MadeVgpu) -> bool:
    """Whether the vGPU was made for this device."""
    name = parse_vgpu_name(unshared_name(held.device))
    if name is None or name.pci != gpu.pci or not held.record:
        return False
    record = record_of(held)
    same = (record.type_id, record.uuid) == (made.type_id, made.uuid)
    return record.attempted and record.pci == place.pci and same


class Vgpus:
    """Makes and destroys vGPUs, as mediated devices or by vendor-specific VFIO, the kernel's two frameworks.

    Existing vGPUs are read from sysfs each time and never remembered. One write makes a vGPU: the type into a
    virtual function, or a UUID for a new mediated device. Calls for one GPU must not overlap: the caller
    holds its lock. ``users(function)`` returns the processes that have a function open.
    """

    def __init__(self, sysfs_root: Path, kernel: Kernel, users: Users) -> None:
        self._sysfs_root = sysfs_root
        self._kernel = kernel
        self._users = users

    def is_there(self, record: VgpuRecord) -> bool:
        """Whether the vGPU of a record exists."""
        return MadeVgpu(record.type_id, record.uuid) in made_on(self._sysfs_root, record.pci)

    def vfio_device(self, record: VgpuRecord) -> str | None:
        """Its name below /dev/vfio/devices, None without IOMMUFD."""
        return vfio_device_of(self._folder(record) / record.uuid)

    def iommu_group(self, record: VgpuRecord) -> int | None:
        """The number of its IOMMU group; None if no IOMMU guards it."""
        # A mediated device has a folder of its own below its function, named by its UUID. In the other
        # framework the UUID is empty, which leaves the folder of the function.
        name = linked_name(self._folder(record) / record.uuid / "iommu_group")
        return int(name) if name is not None and name.isdecimal() else None

    def make(self, record: VgpuRecord, note: Note) -> VgpuRecord:
        """Make the vGPU, or find what an earlier try of the claim has made; returns its record.

        The step ``vgpu`` is noted before the kernel is called. On an error, what was made is undone as far as
        possible, with the step ``destroyed``, and the first error is raised.
        Raises ClaimBlocked if another vGPU is in its place, or if the kernel would not make it now.
        """
        if record.attempted and self.is_there(record):
            return record
        self._refuse_if_taken(record)
        made = replace(record.unmade, attempted=True)
        note("vgpu", written(made))
        try:
            self._create(made)
        except TimeoutError as error:
            # The write is still under way and may make the vGPU later, so nothing can be undone yet.
            note("vgpu", written(replace(made, hangs=True)))
            raise self._in_doubt(record) from error
        except DriverError as error:
            self._take_back(made, error, note)
            raise
        return made

    def destroy(self, record: VgpuRecord, note: Note) -> None:
        """Destroy the vGPU of a record, unless it is gone already, then note ``destroyed``.

        Raises FunctionInUse while a virtual machine has it, ClaimBlocked if the kernel does not answer.
        """
        if not record.attempted:
            return
        # A vGPU whose write hung may still appear. A virtual function can be cleared even so; a mediated
        # device has no file to write to until it exists.
        if self.is_there(record) or (record.hangs and record.framework == "vendor-vfio"):
            self._remove(record)
        note("destroyed", written(record.unmade))

    def _create(self, record: VgpuRecord) -> None:
        """Write to the kernel, then check that it shows the vGPU; raises TimeoutError, FunctionNotMoved."""
        folder = self._folder(record)
        path, text = folder / CURRENT_TYPE, str(record.type_id)
        if record.framework == "mdev":
            path, text = folder / MDEV_TYPES / f"nvidia-{record.type_id}" / "create", record.uuid
        try:
            self._kernel.write(path, text, _WRITE_SECONDS)
        except TimeoutError:
            raise
        except OSError as error:
            raise FunctionNotMoved(
                f"the kernel refused to make the vGPU {record.profile} on {record.function}: "
                f"{error.strerror}",
                _SEE_LOG,
            ) from error
        if not self.is_there(record):
            raise FunctionNotMoved(
                f"the kernel accepted the vGPU {record.profile} on {record.function}, but does not show it",
                _SEE_LOG,
            )

    def _remove(self, record: VgpuRecord) -> None:
        """Write to the kernel, then check that the vGPU is gone."""
        folder = self._folder(record)
        # Type 0 is no vGPU.
        path, text = folder / CURRENT_TYPE, "0"
        if record.framework == "mdev":
            path, text = folder / record.uuid / "remove", "1"
        try:
            self._kernel.write(path, text, _WRITE_SECONDS)
        except TimeoutError as error:
            raise self._in_doubt(record) from error
        except OSError as error:
            # EPERM has two meanings; sysfs tells them apart.
            there = self.is_there(record)
            if not there and error.errno in _NOTHING_THERE:
                return
            if there and error.errno in _BUSY:
                raise self._in_use(record) from error
            raise FunctionNotMoved(
                f"the kernel refused to remove the vGPU {record.profile} from {record.function}: "
                f"{error.strerror}",
                _SEE_LOG,
            ) from error
        if self.is_there(record):
            raise self._in_use(record)

    def _refuse_if_taken(self, record: VgpuRecord) -> None:
        """Raise ClaimBlocked if the kernel would refuse the vGPU, and say what is in the way."""
        there = made_on(self._sysfs_root, record.pci)
        if record.framework == "vendor-vfio" and there:
            raise ClaimBlocked(
                f"the virtual function {record.function} has a vGPU of type {there[0].type_id} that "
                "belongs to no claim",
                f"remove it: echo 0 > {self._folder(record) / CURRENT_TYPE}",
            )
        if record.type_id not in creatable_on(self._sysfs_root, record.pci):
            raise ClaimBlocked(
                f"the vGPU {record.profile} cannot be made on {record.function} now",
                "its GPU has vGPUs of another profile, or lacks GPU instances; delete the pod, so that it "
                "is scheduled again",
            )

    def _folder(self, record: VgpuRecord) -> Path:
        return function_folder(self._sysfs_root, record.pci)

    def _in_use(self, record: VgpuRecord) -> FunctionInUse:
        users = self._users_of(record)
        pods = any(one.pod_uid for one in users)
        way_out = "end the virtual machine" if pods else f"end {named(users)}"
        return FunctionInUse(
            f"the vGPU {record.profile} on {record.function} is in use",
            f"it is tried again; {way_out}",
            for_log=named(users),
        )

    def _in_doubt(self, record: VgpuRecord) -> DriverError:
        what = f"the change of its vGPU {record.profile}"
        return in_doubt(record.pci, what, _WRITE_SECONDS, self._users_of(record))

    def _users_of(self, record: VgpuRecord) -> tuple[User, ...]:
        """The processes that have it open, by its own group and device, which may not be the function's."""
        function = read_function(self._sysfs_root, record.pci)
        if function is None:
            return ()
        own = replace(function, iommu_group=self.iommu_group(record), vfio_device=self.vfio_device(record))
        return tuple(self._users(own))

    def _take_back(self, record: VgpuRecord, first: DriverError, note: Note) -> None:
        """Undo a failed make as far as possible; the caller raises the error itself."""
        try:
            self.destroy(record, note)
        except DriverError as second:
            _log.warning(
                "cannot undo a vGPU that failed yet",
                function=record.function,
                profile=record.profile,
                first=str(first),
                error=str(second),
            )
