"""What the MPS supervisor answers the probes of a kubelet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.process.probes import Probes
from kubeletplugin.kubelet.wire.self_check import MPS_WATCH, SelfCheck

if TYPE_CHECKING:
    from pathlib import Path

    from driver.process.pulse import Pulse
    from kubeletplugin.sharing.mps.supervisor import Supervisor


def probes_of(supervisor: Supervisor, socket: Path, pulse: Pulse) -> Probes:
    """Started with its socket, alive while threads and server answer, ready when daemons run as asked."""
    server = SelfCheck(socket, MPS_WATCH)

    def ready() -> str:
        down = [one for one in supervisor.states().daemons if not one.running]
        return "; ".join(f"the MPS daemon {one.name} does not run: {one.message}" for one in down)

    return Probes(lambda: "", lambda: pulse.hung() or server.why_not(), ready)
