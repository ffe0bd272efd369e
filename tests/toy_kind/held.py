"""The held half of the toy: nothing is made, and a container gets a variable."""

from collections.abc import Mapping
from typing import Any

from driver.devices.region import Region
from driver.health.verdict import Health
from driver.kinds.kind import OfferedKind
from driver.nvml.pci_address import PciAddress
from kubeletplugin.claims.cdi.spec import Edits
from kubeletplugin.claims.journal.entry import HeldDevice
from kubeletplugin.devices.kinds.kind import FoundKind, HardwareNow
from kubeletplugin.kubelet.wire.planned import PlannedDevice
from tests.toy_kind.offered import TOY


class HeldToy(FoundKind):
    """Toys."""

    offered: OfferedKind = TOY

    def locate(self, device: PlannedDevice, own: HeldDevice | None, hardware: HardwareNow) -> HeldDevice:
        """It needs no place."""
        return HeldDevice.of(device, "")

    @staticmethod
    def occupies(held: HeldDevice) -> tuple[Region, ...]:
        """Nothing of any GPU."""
        return ()

    def intact(self, held: HeldDevice) -> bool:
        """Always."""
        return True

    def edits(self, held: HeldDevice, hardware: HardwareNow) -> Edits:
        """The variable, and nothing of the NVIDIA driver."""
        return Edits(variables=(f"{variable(held.device)}=wound-up",), needs_driver=False)

    @staticmethod
    def cuda_uuid(held: HeldDevice) -> str:
        """CUDA does not know it."""
        return ""

    def memory_bytes(self, held: HeldDevice) -> int:
        """It has none."""
        return 0

    def health(self, held: HeldDevice, gpus: Mapping[PciAddress, Health]) -> Health | None:
        """Well, whatever the GPUs do."""
        return Health("Healthy")

    def status(self, held: HeldDevice) -> Mapping[str, Any]:
        """Nothing."""
        return {}


def variable(device: str) -> str:
    """The variable that a container gets with a toy: ``TOY_0`` for ``toy-0``."""
    return device.upper().replace("-", "_")
