"""A GPU with its audio and USB functions below a bridge, all in one IOMMU group, and a binder for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kubeletplugin.devices.host.kernel import Kernel
from kubeletplugin.devices.vfio.binder import GroupBinder
from kubeletplugin.devices.vfio.modules import VfioAlias
from kubeletplugin.devices.vfio.users import User
from tests.driver.hardware.pci_trees import PciTree, at
from tests.kubeletplugin.devices.vfio.plain_kernel import PlainKernel

GPU, AUDIO, USB, BRIDGE = "0000:81:00.0", "0000:81:00.1", "0000:81:00.2", "0000:80:01.0"
FUNCTIONS = (GPU, AUDIO, USB)
GROUP = 7
CLEAN = {"kept": "by the kind"}
"""The record of an unchanged group."""

OWN_DRIVERS = {GPU: "nvidia", AUDIO: "snd_hda_intel", USB: "xhci_hcd", BRIDGE: "pcieport"}


class GroupScene:
    """The group, what was noted of it, and who uses its functions (``users``, by address)."""

    def __init__(self, root: Path) -> None:
        self.tree = PciTree(root)
        self.tree.function(BRIDGE, "0x8086", "0x352a", "0x060400", group=GROUP)
        self.tree.function(GPU, group=GROUP)
        self.tree.function(AUDIO, device="0x22f7", kind="0x040300", group=GROUP)
        self.tree.function(USB, device="0x1ad8", kind="0x0c0330", group=GROUP)
        self.kernel = PlainKernel(root, takes=dict(OWN_DRIVERS))
        self.kernel.boot()
        self.users: dict[str, list[User]] = {}
        self.aliases: tuple[VfioAlias, ...] = ()
        self.record: Mapping[str, Any] = CLEAN
        self.steps: list[str] = []

    def binder(self, kernel: Kernel | None = None) -> GroupBinder:
        """A binder, as a process that has just started would have it."""

        def users(function: Any) -> Sequence[User]:
            return self.users.get(str(function.pci), [])

        return GroupBinder(kernel or self.kernel, self.tree.root, lambda: self.aliases, users)

    def note(self, step: str, record: Mapping[str, Any]) -> None:
        """As the journal does: what was noted is what the next process finds."""
        self.steps.append(step)
        self.record = json.loads(json.dumps(record))

    def bind(self, *gpus: str) -> None:
        """Bind the group; what it answers is kept."""
        asked = [at(gpu) for gpu in gpus or (GPU,)]
        self.record = self.binder().bind(asked[0], asked, self.record, self.note)

    def restore(self) -> None:
        """Give the group back."""
        self.record = self.binder().restore(self.record, self.note)

    def drivers(self) -> dict[str, str]:
        """The driver of each function."""
        return {address: self.kernel.driver(address) for address in OWN_DRIVERS}

    def overrides(self) -> dict[str, str]:
        """The override of each function that has one."""
        found = {address: self.kernel.override(address) for address in OWN_DRIVERS}
        return {address: name for address, name in found.items() if name}


BOUND = {GPU: "vfio-pci", AUDIO: "vfio-pci", USB: "vfio-pci", BRIDGE: "pcieport"}
