"""Starts a command of the driver one of whose loops hangs: ``python -m tests.processes.hanging controller``.

The second look at the GPUs never ends in the controller, the health check never ends in the plugin once a
claim has a whole GPU; half a second counts as hanging.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from controller.given import Given as GivenToController
from driver.kinds.kind import Kinds
from driver.kinds.partition.kind import MADE, STATIC
from driver.kinds.sharing.kind import SHARED
from driver.kinds.whole import WholeKind
from envtest.brisk import given
from kubeletplugin.given import Given as GivenToPlugin
from kubeletplugin.kinds.registry import own_kinds
from kubeletplugin.kinds.whole import HeldWhole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from driver.hardware.gpu import Inventory
    from driver.health.verdict import Health
    from driver.kinds.forms import Forms
    from driver.kinds.kind import Policies
    from driver.nvml.pci_address import PciAddress
    from kubeletplugin.journal.entry import HeldDevice
    from kubeletplugin.kinds.kind import HeldKind
    from kubeletplugin.kinds.registry import NodePorts

_HUNG_SECONDS = 0.5


def _hang() -> None:
    threading.Event().wait()


class _HangsAtTheSecondLook(WholeKind):
    def __init__(self) -> None:
        self._looks = 0

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        self._looks += 1
        if self._looks > 1:
            _hang()
        return super().devices(inventory, policies, so_far)


class _HangsWithTheHealthOfAClaim(HeldWhole):
    def health(self, held: HeldDevice, gpus: Mapping[PciAddress, Health]) -> Health | None:
        _hang()
        return super().health(held, gpus)


def _kinds_of(ports: NodePorts) -> Sequence[HeldKind]:
    _, *others = own_kinds(ports)
    return (_HangsWithTheHealthOfAClaim(ports.discovery, ports.nodes, lambda _pci: None), *others)


def main() -> None:
    """Run the command of the package that the first argument names, with the other arguments."""
    package, *arguments = sys.argv[1:]
    handed = given(package, 0.2)
    if isinstance(handed, GivenToController):
        kinds = Kinds((_HangsAtTheSecondLook(), STATIC, MADE), layers=(SHARED,))
        handed = replace(handed, kinds=lambda: kinds, hung_seconds=_HUNG_SECONDS)
    elif isinstance(handed, GivenToPlugin):
        handed = replace(handed, kinds=lambda: _kinds_of, hung_seconds=_HUNG_SECONDS)
    command = import_module(f"{package}.__main__").main
    command(arguments, prog_name=f"python -m {package}", obj=handed)


if __name__ == "__main__":
    main()
