"""An IMEX channel on the node: a container gets its device node, whose numbers follow from the channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driver.devices.device import AttributeValue
from driver.devices.region import Region
from driver.errors import ClaimBlocked, ClaimRefused
from driver.health.verdict import Health
from driver.kinds.channel import CHANNEL, channel_number
from driver.kinds.kind import OfferedKind
from driver.nvml.pci_address import PciAddress
from kubeletplugin.claims.cdi.spec import Edits
from kubeletplugin.claims.journal.entry import HeldDevice
from kubeletplugin.devices.kinds.kind import FoundKind, HardwareNow
from kubeletplugin.kubelet.wire.planned import PlannedDevice


class HeldChannel(FoundKind):
    """Channels. The claim of a gang has one on each node where a pod of the gang runs."""

    offered: OfferedKind = CHANNEL
    condition = ("ChannelReady", "The channel can be used.")

    def locate(self, device: PlannedDevice, own: HeldDevice | None, hardware: HardwareNow) -> HeldDevice:
        """Check that this node is in the channel's clique, and that nvidia-imex is up."""
        clique, of_channel = self._node.rack.clique(), device.allocated.pool
        if clique is None:
            raise ClaimBlocked(
                f"this node tells no NVLink clique, so it is not known to be in {of_channel}",
                "see the events of the node and `gpuctl doctor` for the state of its NVLink fabric",
            )
        if clique != of_channel:
            raise ClaimRefused(
                f"this node is in the NVLink clique {clique}, but the claim has a channel of {of_channel}",
                "delete the pod, so that it is scheduled again; delete the claim if that clique is gone",
            )
        # A claim that is prepared already keeps its channel while the daemon is restarted.
        if own is None:
            self._node.rack.imex.check()
        return HeldDevice.of(device, "")

    def board(self, held: HeldDevice, hardware: HardwareNow) -> str | None:
        """It is on no GPU."""
        return None

    @staticmethod
    def occupies(held: HeldDevice) -> tuple[Region, ...]:
        """Nothing of any GPU."""
        return ()

    def intact(self, held: HeldDevice) -> bool:
        """Always: a channel is a number."""
        return True

    def edits(self, held: HeldDevice, hardware: HardwareNow) -> Edits:
        """The channel's device node. The GPUs and the driver's files come from another claim of the pod."""
        return Edits((self._node.nodes.channel(_number(held), hardware.host),), needs_driver=False)

    @staticmethod
    def cuda_uuid(held: HeldDevice) -> str:
        """CUDA knows no channels."""
        return ""

    def memory_bytes(self, held: HeldDevice) -> int:
        """It has none."""
        return 0

    def health(self, held: HeldDevice, gpus: Mapping[PciAddress, Health]) -> Health | None:
        """Unknown: the fabric's faults are those of the GPUs."""
        return None

    def status(self, held: HeldDevice) -> Mapping[str, Any]:
        """Nothing: the nodes of a gang would overwrite each other's."""
        return {}

    def metadata(self, held: HeldDevice) -> Mapping[str, AttributeValue]:
        """What the slice of its clique says, which this node does not read."""
        return {"type": CHANNEL.attribute_type, "id": _number(held), "clique": held.pool}


def _number(held: HeldDevice) -> int:
    number = channel_number(held.device)
    if number is None:
        raise ClaimRefused(f"{held.device} is no IMEX channel", "delete the pod")
    return number
