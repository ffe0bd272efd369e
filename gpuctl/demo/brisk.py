"""Starts a command of the driver with short intervals: ``python -m gpuctl.demo.brisk 0.2 controller``.

The number is how long the controller waits, in seconds, after it tainted a device and before it reads the
claims.
"""

from __future__ import annotations

import sys
from importlib import import_module

BRISK = ("gpuctl.demo.brisk", "0.2")
"""For the embedded cluster, whose scheduler has written every allocation 0.2 s after a taint."""

BRISK_ON_REAL = ("gpuctl.demo.brisk", "2.0")
"""For the real scheduler, which may write an allocation later: the time is that of a real node."""


def command_inputs(package: str, settle_seconds: float) -> object:
    """The object that a package's command gets, with short intervals; None if it has no intervals."""
    if package == "controller":
        from controller.intervals import Intervals as OfController
        from controller.process_inputs import Given as GivenToController

        return GivenToController(
            OfController(
                check_seconds=1.0,
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
                check_seconds=1.0, reconcile_seconds=1.0, state_again_seconds=0.2, retire_again_seconds=0.2
            )
        )
    return None


def main() -> None:
    """Run the command of the package that the first argument names, with the other arguments."""
    settle_seconds, package, *arguments = sys.argv[1:]
    command = import_module(f"{package}.__main__").main
    # click hands obj to the command as its context object, where a start without it finds None.
    command(arguments, prog_name=f"python -m {package}", obj=command_inputs(package, float(settle_seconds)))


if __name__ == "__main__":
    main()
