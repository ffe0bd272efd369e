"""What the plugin answers the probes of a kubelet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.process.probes import Probes
from kubeletplugin.kubelet.face import ALONE_PART
from kubeletplugin.kubelet.wire.self_check import HEALTH_CHECK, SelfCheck

if TYPE_CHECKING:
    from pathlib import Path

    from driver.process.pulse import Pulse
    from kubeletplugin.kubelet.face import Face


def probes_of(face: Face, service_socket: Path, pulse: Pulse) -> Probes:
    """Started once its own parts are up, alive while loops and server answer, ready while registered."""
    server = SelfCheck(service_socket, HEALTH_CHECK)

    def started() -> str:
        return "" if face.serving.alive.value else f"not up yet: {', '.join(face.serving.missing())}"

    def ready() -> str:
        if face.serving.state.value:
            return ""
        return (
            started()
            or ("another driver of this name answers on the node" if face.serving.is_down(ALONE_PART) else "")
            or face.registration.why_not()
            or "the kubelet ended its health stream and has not registered the plugin again: see that it runs"
        )

    return Probes(started, lambda: pulse.hung() or server.why_not(), ready)
