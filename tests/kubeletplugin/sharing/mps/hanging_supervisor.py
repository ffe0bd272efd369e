"""Runs the MPS supervisor so that it seems to hang once the file of that name is there, until it has replaced
itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from driver.process.pulse import Pulse
from kubeletplugin.sharing.mps import supervisor
from kubeletplugin.sharing.mps.__main__ import main

HANGS = "hangs"
"""The file beside the supervisor's folder that has it hang: a test may have to start a daemon first."""

_HAS_HUNG = "TEST_HAS_HUNG"


def _hangs(self: Pulse) -> str:  # noqa: ARG001 - it hangs whatever is under way
    mps_dir = Path(sys.argv[sys.argv.index("--mps-dir") + 1])
    return "mps-alarms has been running for 901 s" if mps_dir.with_name(HANGS).exists() else ""


def run() -> None:
    """Run it with the arguments."""
    supervisor.CHECK_SECONDS = 0.5
    if _HAS_HUNG not in os.environ:
        os.environ[_HAS_HUNG] = "yes"
        Pulse.hung = _hangs  # type: ignore[method-assign]
    main(sys.argv[1:], prog_name="python -m kubeletplugin.sharing.mps")


if __name__ == "__main__":
    run()
