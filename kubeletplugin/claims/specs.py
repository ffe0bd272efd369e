"""Gathers the CDI spec of some devices from what their kinds and their sharing say."""

from __future__ import annotations

from collections.abc import Sequence

from driver.errors import HardwareChanged
from driver.nvml.pci_address import PciAddress
from kubeletplugin.cdi.spec import (
    NO_FILES,
    CdiDevice,
    FileEdits,
    HostPaths,
    build_spec,
    file_edits,
)
from kubeletplugin.host.driver_files import DriverFiles, DriverRoot
from kubeletplugin.host.gpu_nodes import GpuNodes
from kubeletplugin.journal.entry import HeldDevice
from kubeletplugin.kinds.kind import HeldKinds, Look
from kubeletplugin.sharing.mps_edits import MpsFolders, mps_edits


class Specs:
    """Makes the CDI specs of claims as their devices are now.

    Minors move over reboots and resets, libraries with upgrades.
    """

    def __init__(
        self,
        kinds: HeldKinds,
        nodes: GpuNodes,
        driver_root: DriverRoot,
        host: HostPaths,
        mps: MpsFolders,
    ) -> None:
        self._kinds = kinds
        self._nodes = nodes
        self._driver_root = driver_root
        self._host = host
        self._mps = mps
        self._made: tuple[DriverFiles, FileEdits] | None = None

    def spec(self, devices: Sequence[HeldDevice], look: Look) -> bytes:
        """The spec of a claim's devices, which have to exist.

        Raises HardwareChanged when a GPU is not the one that the journal names, NodeIncomplete when a
        device node or the driver's libraries are missing, ClaimBlocked for a device that is not made.
        """
        found = []
        for held in devices:
            if held.pci:
                refuse_changed_board(held, look.identity(PciAddress.parse(held.pci)).uuid)
            edits = self._kinds.of(held).edits(held, look)
            if held.share is not None:
                edits += mps_edits(held, devices, self._mps)
            found.append(CdiDevice(held.cdi_device, edits))
        if not any(device.edits.needs_driver for device in found):
            return build_spec(found, (), NO_FILES, self._host)
        return build_spec(found, self._nodes.control(), self._file_edits(), self._host)

    def _file_edits(self) -> FileEdits:
        files = self._driver_root.files()
        if self._made is None or self._made[0] is not files:
            self._made = (files, file_edits(files, self._host))
        return self._made[1]


def refuse_changed_board(held: HeldDevice, expected_uuid: str) -> None:
    """Raise HardwareChanged for a device whose GPU was exchanged since it was published or prepared."""
    if held.uuid != expected_uuid:
        raise HardwareChanged(
            f"device {held.device} was published as {held.uuid}, but {expected_uuid} sits there now: "
            "the GPU was exchanged",
            "delete the pod, so that it is scheduled anew",
        )
