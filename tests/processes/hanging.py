"""Starts a command of the driver one of whose loops hangs: ``python -m tests.processes.hanging controller``.

In the controller, no look at the GPUs ends once a file is there. In the plugin, the health check never ends
once a claim has a whole GPU. Half a second counts as hanging.
"""

import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from controller.process_inputs import Given as GivenToController
from driver.kinds.forms import Forms
from driver.kinds.kind import OfferedKind, Policies
from driver.kinds.whole import WholeKind
from gpuctl.demo.brisk import command_inputs
from kubeletplugin.devices.kinds.whole import HeldWhole
from kubeletplugin.process_inputs import Given as GivenToPlugin
from tests.gpus import Health, Inventory, PciAddress
from tests.plugin import HELD_KINDS, HeldDevice

HANGS_ONCE_THERE = "TESTS_HANGS_ONCE_THERE"
"""The variable with the path of the file that makes the controller hang."""

_HUNG_SECONDS = 0.5


def _hang() -> None:
    threading.Event().wait()


class _HangsOnceTold(WholeKind):
    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        if Path(os.environ[HANGS_ONCE_THERE]).exists():
            _hang()
        return super().devices(inventory, policies, so_far)


class _HangsWithTheHealthOfAClaim(HeldWhole):
    offered: OfferedKind = _HangsOnceTold()

    def health(self, held: HeldDevice, gpus: Mapping[PciAddress, Health]) -> Health | None:
        _hang()
        return super().health(held, gpus)


def main() -> None:
    """Run the command of the package that the first argument names, with the other arguments."""
    package, *arguments = sys.argv[1:]
    handed = command_inputs(package, 0.2)
    if isinstance(handed, (GivenToController, GivenToPlugin)):
        handed = replace(handed, hung_seconds=_HUNG_SECONDS)
    command = import_module(f"{package}.__main__").main
    with HELD_KINDS.added(_HangsWithTheHealthOfAClaim):
        command(arguments, prog_name=f"python -m {package}", obj=handed)


if __name__ == "__main__":
    main()
