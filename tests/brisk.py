"""Starts a command of the driver with short intervals: ``python -m tests.brisk controller --flags``."""

from __future__ import annotations

import sys
from importlib import import_module

BRISK = "tests.brisk"
"""This module's name, for whoever starts processes."""


def intervals(package: str) -> object:
    """The short intervals of a package's command, None where it has none to shorten."""
    if package == "controller":
        from controller import intervals as of_controller

        return of_controller.Intervals(
            check_seconds=0.3,
            settle_seconds=0.2,
            look_again_seconds=(0.2, 1.0),
            socket_seconds=0.05,
            listen_again_seconds=0.1,
        )
    if package == "kubeletplugin":
        from kubeletplugin import intervals as of_plugin

        return of_plugin.Intervals(check_seconds=0.3, reconcile_seconds=1.0, state_again_seconds=0.2)
    return None


def main() -> None:
    """Run the command of the package that the first argument names, with the other arguments."""
    package, *arguments = sys.argv[1:]
    command = import_module(f"{package}.__main__").main
    command(arguments, prog_name=f"python -m {package}", obj=intervals(package))


if __name__ == "__main__":
    main()
