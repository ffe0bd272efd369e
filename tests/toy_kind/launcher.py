"""Starts a command of the driver so that it knows toys: ``python -m tests.toy_kind.launcher controller``."""

import sys
from importlib import import_module

from gpuctl.demo.brisk import command_inputs
from kubeletplugin.devices.kinds.registry import HELD_KINDS
from tests.toy_kind.held import HeldToy

WITH_TOYS = ("tests.toy_kind.launcher",)
"""What starts processes that know toys on the embedded cluster."""

_SETTLE_SECONDS = 0.2


def main() -> None:
    """Run the command of the package that the first argument names, with the other arguments."""
    package, *arguments = sys.argv[1:]
    command = import_module(f"{package}.__main__").main
    with HELD_KINDS.added(HeldToy):
        command(arguments, prog_name=f"python -m {package}", obj=command_inputs(package, _SETTLE_SECONDS))


if __name__ == "__main__":
    main()
