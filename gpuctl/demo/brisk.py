"""Starts a command of the driver with short intervals: ``python -m gpuctl.demo.brisk 0.2 controller``.

The number is how long the controller waits between the taint of a device and its look at the claims.
"""

from __future__ import annotations

import sys
from importlib import import_module

BRISK = ("gpuctl.demo.brisk", "0.2")
"""What starts processes on the embedded cluster, whose scheduler has written 0.2 s after a taint."""

BRISK_ON_REAL = ("gpuctl.demo.brisk", "2.0")
"""The same where the real scheduler needs the time that it is given on a node of users."""


def given(package: str, settle_seconds: float) -> object:
    """What a package's command is handed: the short intervals, None where it has none to shorten."""
    if package == "controller":
        from controller.intervals import Intervals as OfController
        from controller.process_inputs import Given as GivenToController

        return GivenToController(
            OfController(
                check_seconds=0.3,
                settle_seconds=settle_seconds,
                list_again_seconds=(0.2, 1.0),
                version_again_seconds=0.2,
                socket_seconds=0.05,
                listen_again_seconds=0.1,
                virtual_again_seconds=0.5,
                fault_quiet_seconds=1.0,
                fault_hold_seconds=(0.5, 2.0),
            )
        )
    if package == "kubeletplugin":
        from kubeletplugin.process_inputs import Given as GivenToPlugin
        from kubeletplugin.process_inputs import Intervals as OfPlugin

        return GivenToPlugin(
            OfPlugin(
                check_seconds=0.3, reconcile_seconds=1.0, state_again_seconds=0.2, retire_again_seconds=0.2
            )
        )
    return None


def main() -> None:
    """Run the command of the package that the first argument names, with the other arguments."""
    settle_seconds, package, *arguments = sys.argv[1:]
    command = import_module(f"{package}.__main__").main
    command(arguments, prog_name=f"python -m {package}", obj=given(package, float(settle_seconds)))


if __name__ == "__main__":
    main()
