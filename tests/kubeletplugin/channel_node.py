"""A tray of a rack with the plugin's parts for both DRA drivers: that of GPUs, and that of IMEX channels."""

import json
from pathlib import Path
from typing import Any

from driver.devices.names import CHANNELS_DRIVER_NAME
from kubeletplugin.assembly import Channels, Folders, assemble_channels
from tests.gpus import DriverError
from tests.kubeletplugin.fake_node import FakeNode
from tests.plugin import ClaimRef, PreparedDevice, Recovered

CLIQUE = "5c2f8d1e-7a34-4b60-9e15-d30b6c8f4a72.4026"


class ChannelNode:
    """A tray of a rack, with the parts for both DRA drivers."""

    def __init__(self, folder: Path) -> None:
        self.node = FakeNode(folder, "gb200-tray")
        self.node.clique = CLIQUE
        self.folder = folder / CHANNELS_DRIVER_NAME
        self.folder.mkdir()
        self.channels = self.instance()

    def instance(self) -> Channels:
        """The parts of an instance of the plugin."""
        folders = Folders(self.folder, self.node.cdi)
        identity = self.node.identity(CHANNELS_DRIVER_NAME, "")
        return assemble_channels(self.node.parts.common, identity, self.node.cluster(), folders)

    def restart(self) -> Recovered:
        """A new process on the same files."""
        self.channels.peers.close()
        recovered = self.node.restart()
        self.channels = self.instance()
        return recovered

    def claim(self, name: str, number: int) -> ClaimRef:
        """An allocated claim for a channel."""
        ref = self.node.claim_devices(name)
        self.give(ref, f"channel-{number}")
        return ref

    def give(self, ref: ClaimRef, device: str) -> None:
        """Have a claim allocated a channel, too."""
        results = self.node.api[ref.namespace, ref.name]["status"]["allocation"]["devices"]["results"]
        given = {"request": "channel", "driver": CHANNELS_DRIVER_NAME, "pool": CLIQUE}
        results.append({**given, "device": device})

    def prepare(self, ref: ClaimRef) -> tuple[PreparedDevice, ...]:
        """What the kubelet does with the driver of channels."""
        return self.channels.preparer.prepare(ref, self.node.call())

    def unprepare(self, ref: ClaimRef) -> DriverError | None:
        """What it does when the last pod of the gang on this node has ended."""
        return self.channels.preparer.unprepare(ref, self.node.call())

    def spec(self, ref: ClaimRef) -> dict[str, Any]:
        """The CDI spec of a claim."""
        (path,) = self.node.cdi.glob(f"k8s.{CHANNELS_DRIVER_NAME}-claim_{ref.uid}.json")
        found: dict[str, Any] = json.loads(path.read_bytes())
        return found
