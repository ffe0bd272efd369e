"""A DRA driver of somebody else, for network cards, as a process: prepares without doing anything."""

from __future__ import annotations

import sys
from pathlib import Path

from driver.claims.allocation import read_claim
from driver.kube.client import KubeClient
from driver.kube.paths import claim_path
from driver.process.metrics import Metrics
from driver.process.service import Service
from kubeletplugin.kubelet.face import READY_PART, open_face
from kubeletplugin.kubelet.node_state import NodeStateBoard
from kubeletplugin.kubelet.wire.claim_call import Call, ClaimRef, PreparedDevice
from kubeletplugin.kubelet.wire.health_board import HealthBoard
from tools.scenarios.places.network_cards.name import DRIVER


class NicClaims:
    """Answers for the cards that a claim was given, which need no CDI device."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    def prepare(self, claim: ClaimRef, _call: Call) -> tuple[PreparedDevice, ...]:
        """The cards of a claim, without anything for its containers."""
        stored = self._client.get(claim_path(claim.namespace, claim.name))
        return tuple(
            PreparedDevice((one.request,), one.pool, one.device, ())
            for one in read_claim(stored, claim.uid, DRIVER).devices
        )

    def unprepare(self, _claim: ClaimRef, _call: Call) -> None:
        """Nothing was done, so nothing has to be undone."""


def main(plugins_dir: Path, registry_dir: Path, kubeconfig: Path) -> None:
    """Serve until SIGTERM."""
    service = Service()
    face = open_face(
        service,
        driver=DRIVER,
        service_socket=plugins_dir / DRIVER / "dra.sock",
        registration_socket=registry_dir / f"{DRIVER}-reg.sock",
        claims=NicClaims(KubeClient.connect(kubeconfig, user_agent=DRIVER)),
        board=HealthBoard(),
        state=NodeStateBoard(),
        metrics=Metrics(),
    )
    face.serving.up(READY_PART)
    service.run()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
