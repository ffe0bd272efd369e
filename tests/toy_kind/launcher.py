"""Starts a command of the driver so that it knows toys: ``python -m tests.toy_kind.launcher controller``."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module

from controller.process_inputs import Given as GivenToController
from gpuctl.demo.brisk import command_inputs
from kubeletplugin.process_inputs import Given as GivenToPlugin

WITH_TOYS = ("tests.toy_kind.launcher",)
"""What starts processes that know toys on the embedded cluster."""

_SETTLE_SECONDS = 0.2


def with_toys(package: str) -> object:
    """What a package's command is handed: short intervals, and the driver's kinds with toys."""
    brisk = command_inputs(package, _SETTLE_SECONDS)
    if isinstance(brisk, GivenToController):
        return replace(brisk, kinds=lambda: import_module("tests.toy_kind.offered").kinds())
    if isinstance(brisk, GivenToPlugin):
        return replace(brisk, kinds=lambda: import_module("tests.toy_kind.held").kinds_of)
    return brisk


def main() -> None:
    """Run the command of the package that the first argument names, with the other arguments."""
    package, *arguments = sys.argv[1:]
    command = import_module(f"{package}.__main__").main
    command(arguments, prog_name=f"python -m {package}", obj=with_toys(package))


if __name__ == "__main__":
    main()
