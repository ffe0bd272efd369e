"""The whole GPU on the node: nothing is made, but MIG mode has to be off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driver.devices.device import AttributeValue
from driver.devices.region import Region
from driver.health.verdict import Health
from driver.kinds.kind import OfferedKind
from driver.kinds.whole import WHOLE
from driver.nvml.pci_address import PciAddress
from kubeletplugin.claims.cdi.spec import Edits
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, Record
from kubeletplugin.devices.host.gpu_nodes import drm_links
from kubeletplugin.devices.kinds.kind import FoundKind, HardwareNow, Note
from kubeletplugin.devices.kinds.partition.making import Partitions
from kubeletplugin.kubelet.wire.planned import PlannedDevice


class HeldWhole(FoundKind):
    """Whole GPUs. MIG mode is turned off for one, and stays off until a partition needs it."""

    offered: OfferedKind = WHOLE
    condition = ("GpuReady", "The GPU can be used.")

    def locate(self, device: PlannedDevice, own: HeldDevice | None, hardware: HardwareNow) -> HeldDevice:
        """The GPU that is at the address now."""
        (region,) = device.name.regions
        return HeldDevice.of(device, hardware.identity(region.pci).uuid)

    @staticmethod
    def occupies(held: HeldDevice) -> tuple[Region, ...]:
        """All of the GPU."""
        return (Region(_pci(held)),)

    def make(self, entry: Entry, index: int, hardware: HardwareNow, note: Note) -> Record:
        """Turn MIG mode off if it is on, or raise ClaimBlocked; with admin access it stays as it is."""
        # While MIG mode is on, CUDA can use GPU instances only, never the GPU itself.
        held = entry.devices[index]
        pci = _pci(held)
        if held.admin_access or not hardware.identity(pci).can_do_mig:
            return held.record
        if self._node.discovery.mig_enabled(pci):
            Partitions(self._node.discovery).turn_off_for_whole(pci)
        return held.record

    def intact(self, held: HeldDevice) -> bool:
        """Always: whether it is still the same GPU is checked by its UUID."""
        return True

    def edits(self, held: HeldDevice, hardware: HardwareNow) -> Edits:
        """The GPU's nodes, with the links to its DRM nodes."""
        pci = _pci(held)
        # The minor is read again: it may be another one after a reset or a reboot.
        nodes = self._node.nodes.whole(pci, hardware.identity(pci).minor, hardware.host)
        return Edits(nodes, links=drm_links(pci, nodes))

    @staticmethod
    def cuda_uuid(held: HeldDevice) -> str:
        """The GPU's UUID."""
        return held.uuid

    def memory_bytes(self, held: HeldDevice) -> int:
        """The GPU's memory, read from NVML now."""
        return self._node.discovery.on_gpu(
            _pci(held), lambda device, watch: watch("memory_bytes", device.memory_bytes)
        )

    def health(self, held: HeldDevice, gpus: Mapping[PciAddress, Health]) -> Health | None:
        """The health of the GPU."""
        return gpus.get(_pci(held))

    def status(self, held: HeldDevice) -> Mapping[str, Any]:
        """Nothing: its address and UUID are in the status of every device."""
        return {}

    def metadata(self, held: HeldDevice) -> Mapping[str, AttributeValue]:
        """Its PCI address, which is known without a slice."""
        return {"resource.kubernetes.io/pciBusID": held.pci}


def _pci(held: HeldDevice) -> PciAddress:
    return PciAddress.parse(held.pci)
