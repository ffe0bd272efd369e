"""Runs the MPS supervisor so that it seems to hang at once, until it has replaced itself."""

from __future__ import annotations

import os
import sys

from driver.process.pulse import Pulse
from kubeletplugin.mps import watchdog
from kubeletplugin.mps.__main__ import main

_HAS_HUNG = "TEST_HAS_HUNG"


def _hangs(self: Pulse) -> str:  # noqa: ARG001 - it hangs whatever is under way
    return "mps-alarms is at work for 901 s"


def run() -> None:
    """Run it with the arguments."""
    watchdog.LOOK_SECONDS = 0.5
    if _HAS_HUNG not in os.environ:
        os.environ[_HAS_HUNG] = "yes"
        Pulse.hung = _hangs  # type: ignore[method-assign]
    main(sys.argv[1:], prog_name="python -m kubeletplugin.mps")


if __name__ == "__main__":
    run()
