"""Starts the controller so that it takes two plugins for two releases after half a second."""

import sys
from dataclasses import replace

from controller.__main__ import main as controller
from controller.process_inputs import Given
from gpuctl.demo.brisk import command_inputs

_COMPANION_SECONDS = 0.5


def main() -> None:
    """Run the controller with the arguments."""
    handed = command_inputs("controller", 0.2)
    assert isinstance(handed, Given)
    intervals = replace(handed.intervals, companion_seconds=_COMPANION_SECONDS)
    controller(sys.argv[1:], prog_name="python -m controller", obj=replace(handed, intervals=intervals))


if __name__ == "__main__":
    main()
