"""Gathers what the CDI spec of some devices needs from NVML, sysfs, device nodes and the driver's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from driver.devices.names import parse_gpu_device_name, unshared_name
from driver.errors import ClaimBlocked, HardwareChanged
from driver.hardware.inventory import Discovery, GpuIdentity
from driver.hardware.pci import drm_nodes
from driver.nvml.pci_address import PciAddress
from kubeletplugin.cdi.spec import CdiDevice, FileEdits, HostPaths, build_spec, file_edits
from kubeletplugin.host.capabilities import Capabilities
from kubeletplugin.host.device_nodes import DeviceFolder, DeviceNode
from kubeletplugin.host.driver_files import DriverFiles, DriverRoot
from kubeletplugin.journal.entry import HeldDevice
from kubeletplugin.sharing.mps_edits import MpsFolders, mps_edits


class GpuSpecs:
    """Makes the CDI spec for GPUs and partitions as they are now.

    Minors move over reboots and resets, libraries with upgrades.
    """

    def __init__(
        self,
        discovery: Discovery,
        sysfs_root: Path,
        driver_root: DriverRoot,
        host: HostPaths,
        mps: MpsFolders,
    ) -> None:
        self._discovery = discovery
        self._sysfs_root = sysfs_root
        self._driver_root = driver_root
        self._host = host
        self._mps = mps
        self._made: tuple[DriverFiles, FileEdits] | None = None

    def identities(self, gpus: Sequence[PciAddress]) -> dict[str, GpuIdentity]:
        """UUID and minor of each GPU, fresh from NVML, by PCI address. Raises NvmlError."""
        return {str(pci): self._discovery.identity(pci) for pci in gpus}

    def spec(self, devices: Sequence[HeldDevice], identities: Mapping[str, GpuIdentity]) -> bytes:
        """The spec of a claim's devices; partitions have to exist, and have their ids in the record.

        Raises HardwareChanged when a GPU is not the one that the journal names, NodeIncomplete when a
        device node or the driver's libraries are missing, ClaimBlocked for a partition that is not made.
        """
        nodes = DeviceFolder.below(self._driver_root.path)
        cdi_devices = []
        for held in devices:
            identity = identities[held.pci]
            if held.uuid != identity.uuid:
                raise changed_board(held.device, held.uuid, identity.uuid)
            gpu = nodes.require_gpu(identity.minor)
            if parse_gpu_device_name(unshared_name(held.device)) is None:
                own = self._instance_nodes(nodes, identity.minor, held)
            else:
                names = drm_nodes(self._sysfs_root, PciAddress.parse(held.pci))
                found = (nodes.find(f"/dev/dri/{name}") for name in names)
                own = tuple(node for node in found if node is not None)
            edits = mps_edits(held, devices, self._mps)
            cdi_devices.append(CdiDevice(held.cdi_device, (gpu, *own), *edits))
        return build_spec(cdi_devices, nodes.control(), self._file_edits(), self._host)

    def _instance_nodes(
        self, nodes: DeviceFolder, gpu_minor: int, held: HeldDevice
    ) -> tuple[DeviceNode, ...]:
        """What opens a partition and nothing else of its GPU; the DRM nodes would open all of it."""
        record = held.partition
        if record is None or record.gpu_instance_id is None or record.compute_instance_id is None:
            raise ClaimBlocked(f"the partition {held.device} is not made yet", "the kubelet tries again")
        capabilities = Capabilities.below(self._driver_root.path)
        return capabilities.nodes(nodes, gpu_minor, record.gpu_instance_id, record.compute_instance_id)

    def _file_edits(self) -> FileEdits:
        files = self._driver_root.files()
        if self._made is None or self._made[0] is not files:
            self._made = (files, file_edits(files, self._host))
        return self._made[1]


def changed_board(device: str, expected_uuid: str, found_uuid: str) -> HardwareChanged:
    """The refusal for a device whose GPU was exchanged since it was published."""
    return HardwareChanged(
        f"device {device} was published as {expected_uuid}, but {found_uuid} sits there now: "
        "the GPU was exchanged",
        "delete the pod, so that it is scheduled anew",
    )
