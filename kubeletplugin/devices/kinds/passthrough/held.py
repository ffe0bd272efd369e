"""GPUs for virtual machines: bound to vfio while a claim has them, and with their own drivers otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from driver.claims.opaque import VfioDeviceConfig
from driver.devices.device import AttributeValue
from driver.devices.node_state import BlockedPlacement
from driver.devices.region import Region
from driver.errors import ClaimBlocked, ClaimRefused, HardwareChanged, NodeIncomplete, NvmlError
from driver.hardware.functions import NVIDIA_KERNEL_DRIVER, IommuGroup, PciFunction, PciView
from driver.hardware.gpu import Inventory
from driver.hardware.inventory import Discovery
from driver.hardware.pci_view import iommu_group_of, read_function
from driver.hardware.persistence import Persistence
from driver.health.verdict import Health
from driver.kinds.kind import OfferedKind
from driver.kinds.passthrough.kind import PASSTHROUGH, passthrough_uuid
from driver.nvml.api import GpuLost
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.cdi.spec import Edits
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, Record
from kubeletplugin.devices.host.gpu_nodes import DeviceNode, VfioNodes
from kubeletplugin.devices.kinds.kind import HardwareNow, NodeKind, NodePorts, Note
from kubeletplugin.devices.vfio.binder import FUNCTIONS, GroupBinder, functions_to_bind
from kubeletplugin.devices.vfio.failures import in_use
from kubeletplugin.devices.vfio.function_files import Users
from kubeletplugin.devices.vfio.users import named
from kubeletplugin.kubelet.wire.controllers import Controllers, NotLetGo
from kubeletplugin.kubelet.wire.planned import PlannedDevice

_VARIABLE = "PCI_RESOURCE_GPU_NVIDIA_COM_"
"""The prefix under which KubeVirt's launcher looks for PCI addresses, as device plugins set it."""

_RESCHEDULE = "delete the pod, so that it is scheduled again with a device that exists"


class HeldPassthrough(NodeKind):
    """GPUs that are passed through to virtual machines."""

    offered: OfferedKind = PASSTHROUGH
    condition = ("BoundToVfio", "The GPU is bound to vfio, and a virtual machine can have it.")

    def __init__(self, node: NodePorts) -> None:
        super().__init__(node)
        self._nodes = VfioNodes(node.driver)
        self._bus = Bus(node.sysfs_root)
        self._hand_over = HandOver(node.discovery, node.controllers, node.binder)

    def locate(self, device: PlannedDevice, own: HeldDevice | None, hardware: HardwareNow) -> HeldDevice:
        """Its GPUs and their IOMMU group, whatever drivers they have now.

        Raises ClaimRefused for admin access, and if a GPU is gone; NodeIncomplete without an IOMMU;
        ClaimBlocked while MIG mode is on, which is never changed for this, or while somebody uses the GPU.
        """
        if device.allocated.admin_access:
            raise ClaimRefused(
                f"{device.allocated.device} is for a virtual machine, and admin access to it is not possible",
                "ask for it without adminAccess, or ask for the GPU itself",
            )
        gpus = self._bus.require([region.pci for region in device.name.regions])
        group = self._bus.group_of(gpus)
        before = None if own is None else record_of(own)
        # Once the binding has begun, the GPU may be on vfio for this claim already.
        if before is None or not before.is_begun:
            self._refuse_used(gpus)
        config = device.config if isinstance(device.config, VfioDeviceConfig) else VfioDeviceConfig()
        record = replace(
            before or PassthroughRecord(group.number),
            group=group.number,
            device_ids=tuple(gpu.device_id for gpu in gpus),
            iommufd=config.backend_policy == "PreferIommuFD",
            api_device=config.enable_api_device,
        )
        return HeldDevice.of(device, passthrough_uuid(gpus[0].pci), written(record))

    def board(self, held: HeldDevice, hardware: HardwareNow) -> str | None:
        """The published UUID, made from the address: no driver that knows the GPU's own one has it now."""
        return passthrough_uuid(PciAddress.parse(held.pci))

    @staticmethod
    def occupies(held: HeldDevice) -> tuple[Region, ...]:
        """All of its GPUs."""
        return tuple(map(Region, _gpus(held)))

    def changes(self, held: HeldDevice) -> bool:
        """Always: it changes drivers."""
        return True

    def make(self, entry: Entry, index: int, hardware: HardwareNow, note: Note) -> Record:
        """Bind the whole IOMMU group to vfio, unless it is bound already."""
        # Read again: the GPUs may have other drivers by now.
        held = entry.devices[index]
        gpus = self._bus.require(_gpus(held))
        return written(self._hand_over.take(gpus, record_of(held), note))

    def intact(self, held: HeldDevice) -> bool:
        """Whether all of the group is bound to vfio."""
        return self._bus.on_vfio(record_of(held).group, _gpus(held)[0])

    @staticmethod
    def is_made(held: HeldDevice) -> bool:
        """Whether its binding was started."""
        return record_of(held).is_begun

    def unmake(self, entry: Entry, index: int, note: Note) -> Record:
        """Give the functions back to their drivers; those that are gone are skipped."""
        record = record_of(entry.devices[index])
        return written(self._hand_over.give_back(record, note).unmade)

    def unmade(self, held: HeldDevice) -> Record:
        """Its group and how it is opened, without the changes."""
        return written(record_of(held).unmade)

    def edits(self, held: HeldDevice, hardware: HardwareNow) -> Edits:
        """Its vfio nodes and a variable with the addresses of its GPUs, without the NVIDIA driver's files.

        Raises NodeIncomplete, HardwareChanged, and ClaimBlocked while it is not bound.
        """
        gpus = self._bus.require(_gpus(held))
        record = record_of(held)
        # vfio cannot read a UUID. The PCI device id at least shows that a board of another model is there.
        if record.device_ids not in ((), tuple(gpu.device_id for gpu in gpus)):
            raise HardwareChanged(
                f"device {held.device} is not the GPU that was prepared",
                "delete the pod, so that it is scheduled again",
            )
        if not self._bus.on_vfio(record.group, gpus[0].pci):
            raise ClaimBlocked(f"{held.device} is not bound to vfio", "the kubelet tries again")
        nodes = self._opening(record, gpus[0])
        addresses = ",".join(str(gpu.pci) for gpu in gpus)
        # Names of variables have no dashes.
        name = held.device.upper().replace("-", "_")
        return Edits(nodes, (f"{_VARIABLE}{name}={addresses}",), needs_driver=False)

    @staticmethod
    def cuda_uuid(held: HeldDevice) -> str:
        """Empty: CUDA on this node cannot use it."""
        return ""

    def memory_bytes(self, held: HeldDevice) -> int:
        """Unknown, and not needed: it is never shared."""
        return 0

    def health(self, held: HeldDevice, gpus: Mapping[PciAddress, Health]) -> Health | None:
        """Healthy while vfio has it: only the virtual machine can see errors of the GPU."""
        record = record_of(held)
        missing = [str(pci) for pci in _gpus(held) if self._bus.function(pci) is None]
        if missing:
            return Health("Unhealthy", f"the GPU {', '.join(missing)} does not exist any more")
        if not self._bus.on_vfio(record.group, _gpus(held)[0]):
            return Health("Unknown", "the GPU is not bound to vfio")
        return Health("Healthy")

    def status(self, held: HeldDevice) -> Mapping[str, Any]:
        """Its PCI addresses, its group, and while vfio has it, the nodes that open it."""
        record, addresses = record_of(held), {"pciBusIDs": list(held.gpus)}
        function = self._bus.function(_gpus(held)[0])
        if function is None or not self._bus.on_vfio(record.group, _gpus(held)[0]):
            return {**addresses, "iommuGroup": record.group}
        try:
            # The nodes are only shown to people, so a missing one is not an error here.
            nodes = [node.path for node in self._opening(record, function)]
        except NodeIncomplete:
            nodes = []
        return {**addresses, "iommuGroup": record.group, **({"nodes": nodes} if nodes else {})}

    def metadata(self, held: HeldDevice) -> Mapping[str, AttributeValue]:
        """The address that a virtual machine monitor needs, its group, and the first node that opens it."""
        record = record_of(held)
        attributes: dict[str, AttributeValue] = {"resource.kubernetes.io/pciBusID": held.pci}
        attributes["iommuGroup"] = record.group
        nodes = self.status(held).get("nodes")
        return {**attributes, "vfioNode": nodes[0]} if nodes else attributes

    def foreign(self, inventory: Inventory, owners: Sequence[HeldDevice]) -> Iterable[BlockedPlacement]:
        """The GPUs that somebody else uses by vfio, such as a virtual machine outside of Kubernetes."""
        return _used_by_others(inventory.pci, owners, self._node.users)

    def _refuse_used(self, gpus: Sequence[PciFunction]) -> None:
        """Raise ClaimBlocked while somebody else uses a GPU by vfio, or MIG mode is on."""
        for gpu in gpus:
            if gpu.driver == NVIDIA_KERNEL_DRIVER and gpu.physical is None:
                if self._node.discovery.mig_enabled(gpu.pci):
                    raise ClaimBlocked(
                        f"MIG mode of {gpu.pci} is on, and passthrough does not change it",
                        "it is turned off when no claim has a partition of the GPU; otherwise turn it off: "
                        f"nvidia-smi -i {gpu.pci} -mig 0",
                    )
            # A GPU that is on vfio but not open may be taken over as it is.
            elif gpu.on_vfio and (users := self._node.users(gpu)):
                raise in_use(gpu.pci, gpu.driver or "", users)

    def _opening(self, record: PassthroughRecord, gpu: PciFunction) -> tuple[DeviceNode, ...]:
        """The nodes that open the functions, those of IOMMUFD if it is preferred and the kernel has it.

        Raises NodeIncomplete.
        """
        if record.iommufd:
            names = [one.vfio_device for one in self._bus.endpoints(record.group, gpu.pci)]
            nodes = self._nodes.of_iommufd(names, with_api=record.api_device)
            if nodes is not None:
                return nodes
        return self._nodes.of_group(record.group, with_api=record.api_device)


def _gpus(held: HeldDevice) -> list[PciAddress]:
    return [PciAddress.parse(pci) for pci in held.gpus]


def _used_by_others(view: PciView, owners: Sequence[HeldDevice], users: Users) -> Iterator[BlockedPlacement]:
    """The GPUs that a process uses by vfio and that no claim has; they must not be given to anybody.

    A GPU that is bound to vfio but not open, perhaps since the boot, is free: a claim can have it as it is.
    """
    owned = {pci for held in owners for pci in held.gpus}
    for function in view.functions:
        if str(function.pci) in owned or not function.on_vfio:
            continue
        found = users(function)
        if found:
            yield BlockedPlacement(
                function.pci, None, "vfio-user", f"{named(found)} uses it through {function.driver}"
            )


class Bus:
    """The GPUs of a device on the PCI bus, read from sysfs; refuses what cannot be passed through."""

    def __init__(self, sysfs_root: Path) -> None:
        self._sysfs_root = sysfs_root

    def function(self, pci: PciAddress) -> PciFunction | None:
        """One function as it is now; None if it is not on the bus."""
        return read_function(self._sysfs_root, pci)

    def require(self, addresses: Sequence[PciAddress]) -> tuple[PciFunction, ...]:
        """The GPUs at these addresses; raises ClaimRefused if one is missing."""
        found = []
        for pci in addresses:
            function = self.function(pci)
            if function is None or not function.is_gpu:
                raise ClaimRefused(f"GPU {pci} does not exist any more", _RESCHEDULE)
            found.append(function)
        return tuple(found)

    def group_of(self, gpus: Sequence[PciFunction]) -> IommuGroup:
        """The one IOMMU group that has these GPUs and no others.

        Raises NodeIncomplete if no IOMMU guards them, ClaimRefused if the groups differ from those that were
        published, and ClaimBlocked while a GPU has virtual functions.
        """
        first = gpus[0]
        group = iommu_group_of(self._sysfs_root, first.pci)
        functions_to_bind(first.pci, group, [gpu.pci for gpu in gpus])
        elsewhere = [str(gpu.pci) for gpu in gpus if gpu.iommu_group != first.iommu_group]
        if group is None or elsewhere:
            raise ClaimRefused(
                f"{', '.join(elsewhere)} is not in the IOMMU group of {first.pci} any more", _RESCHEDULE
            )
        return group

    def endpoints(self, number: int, pci: PciAddress) -> tuple[PciFunction, ...]:
        """The functions of the group that vfio needs; empty if the function is in another group now."""
        group = iommu_group_of(self._sysfs_root, pci)
        return group.endpoints if group is not None and group.number == number else ()

    def on_vfio(self, number: int, pci: PciAddress) -> bool:
        """Whether the whole group is bound to drivers of vfio."""
        functions = self.endpoints(number, pci)
        return bool(functions) and all(one.on_vfio for one in functions)


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
    # The record of the binding (devices.vfio.binder), empty while nothing is changed.
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


_log = get_logger("passthrough")

_BACK_SECONDS = 5.0
"""How long to wait for controllers when a GPU comes back; one that does not answer prevents nothing then."""


class HandOver:
    """Takes GPUs from the NVIDIA driver for vfio, and gives them back. Callers hold the locks of their claim.

    The driver does not let go of a GPU while a process has it open: this process, the controllers of the
    node, nvidia-persistenced, and programs that compute. The first two close NVML for the time of the change,
    and persistence mode is turned off. For all other processes the claim has to wait.
    """

    def __init__(self, discovery: Discovery, controllers: Controllers, binder: GroupBinder) -> None:
        self._discovery = discovery
        self._persistence = Persistence(discovery)
        self._controllers = controllers
        self._binder = binder

    def take(self, gpus: Sequence[PciFunction], record: PassthroughRecord, note: Note) -> PassthroughRecord:
        """Bind the group of these GPUs to vfio; returns the record.

        Raises NotLetGo, NvmlError, and the errors of the binding (kubeletplugin.devices.vfio.failures).
        """
        addresses = [gpu.pci for gpu in gpus]
        # A GPU that shows no driver is not skipped here. The NVIDIA driver may still be letting go of it,
        # since the kernel removes the link to the driver first.
        if all(gpu.on_vfio for gpu in gpus):
            return read(self._binder.bind(addresses[0], addresses, written(record), note))
        # Before the NVML sessions close: persistence mode is changed by NVML.
        record = self._without_persistence(addresses, record, note)
        with self._controllers.letting_go(), self._discovery.let_go():
            return read(self._binder.bind(addresses[0], addresses, written(record), note))

    def give_back(self, record: PassthroughRecord, note: Note) -> PassthroughRecord:
        """Restore the functions, and the persistence mode of the GPUs; returns the record.

        Raises NvmlError, and the errors of the binding.
        """
        with self._restarting_sessions(record):
            record = read(self._binder.restore(written(record), note))
        for pci in record.persistent:
            # None means that NVML has no such GPU, so there is no mode to restore.
            if self._has_persistence(PciAddress.parse(pci)) is False:
                self._persistence.set(PciAddress.parse(pci), on=True)
        record = replace(record, persistent=())
        note("given back", written(record))
        return record

    def _without_persistence(
        self, gpus: Sequence[PciAddress], record: PassthroughRecord, note: Note
    ) -> PassthroughRecord:
        """Turn persistence mode off, by which the driver or nvidia-persistenced keeps the GPUs open."""
        on = [pci for pci in gpus if self._has_persistence(pci)]
        if not on:
            return record
        # Those of an earlier try stay in the list: their mode reads as off by now.
        kept = tuple(dict.fromkeys((*record.persistent, *map(str, on))))
        record = replace(record, persistent=kept)
        note("persistence", written(record))
        for pci in on:
            self._persistence.set(pci, on=False)
        return record

    def _has_persistence(self, pci: PciAddress) -> bool | None:
        """Whether the mode is on; None if NVML has no such GPU, or the GPU has no such mode."""
        try:
            return self._persistence.is_on(pci)
        # Its former driver may not have it back yet.
        except GpuLost as error:
            _log.info("cannot read persistence mode", gpu=str(pci), error=str(error))
            return None

    def _restarting_sessions(self, record: PassthroughRecord) -> AbstractContextManager[None]:
        if any(one.get("driver") == NVIDIA_KERNEL_DRIVER for one in record.functions):
            return restarting_sessions(self._discovery, self._controllers)
        return nullcontext()


@contextmanager
def restarting_sessions(discovery: Discovery, controllers: Controllers) -> Iterator[None]:
    """Close the NVML sessions for the block, so that those opened after it see a GPU that came back in it.

    A session that cannot be closed is only logged: it does not prevent the change, it sees the GPU later.
    """
    # NVML lists the GPUs that there are at nvmlInit; a session that is open does not see another one.
    with ExitStack() as away:
        for sessions in (controllers.letting_go(_BACK_SECONDS), discovery.let_go()):
            try:
                away.enter_context(sessions)
            except (NotLetGo, NvmlError) as error:
                _log.warning("a GPU that comes back will be seen late", error=error.logged)
        yield
