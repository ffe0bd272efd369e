"""A DRA driver of somebody else, for one network card: prepares without doing anything."""

from __future__ import annotations

import sys
from pathlib import Path

from driver.process.metrics import Metrics
from driver.process.service import Service
from kubeletplugin.kubelet.face import READY_PART, open_face
from kubeletplugin.kubelet.node_state import NodeStateBoard
from kubeletplugin.wire.claim_call import Call, ClaimRef, PreparedDevice
from kubeletplugin.wire.health_board import HealthBoard

DRIVER = "nic.example.com"
POOL = "node-0-nics"
DEVICE = "eth1"


class NicClaims:
    """Answers for the one card, which needs no CDI device."""

    def prepare(self, _claim: ClaimRef, _call: Call) -> tuple[PreparedDevice, ...]:
        return (PreparedDevice(("nic",), POOL, DEVICE, ()),)

    def unprepare(self, _claim: ClaimRef, _call: Call) -> None:
        """Nothing was done, so nothing has to be undone."""


def main(plugins_dir: Path, registry_dir: Path) -> None:
    """Serve until SIGTERM."""
    service = Service()
    face = open_face(
        service,
        driver=DRIVER,
        service_socket=plugins_dir / DRIVER / "dra.sock",
        registration_socket=registry_dir / f"{DRIVER}-reg.sock",
        claims=NicClaims(),
        board=HealthBoard(),
        state=NodeStateBoard(),
        metrics=Metrics(),
    )
    face.serving.up(READY_PART)
    service.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
