"""Runs the plugin's retirement as a process: it cleans its node, then says so until it is told to end."""

from __future__ import annotations

import threading

from driver.devices.names import DRIVER_NAME
from driver.process import probes
from driver.process.log import get_logger
from driver.process.probes import Probes
from driver.process.service import Service
from kubeletplugin.assembly import Parts
from kubeletplugin.process_inputs import Given
from kubeletplugin.retirement import Left, retire, until_retired
from kubeletplugin.settings import Settings
from kubeletplugin.sharing.mps_client import MpsClient
from kubeletplugin.wiring import assemble_alone

TRIES = 15
"""How often it is tried: within some seconds a pod that was ended has let go of its devices."""

_log = get_logger("retire")


def retire_node(settings: Settings, given: Given) -> None:
    """Clean the node and stay until SIGTERM; raises DriverError when that cannot be done within some seconds.

    The process is ready, by its probe, when nothing of the plugin is left on the node; until then the probe
    says what is.
    """
    service = Service()
    service.catch_signals()
    progress = _Progress()
    probes.serve(service, settings.health_addr, Probes(lambda: "", lambda: "", progress.why_not))
    mps = MpsClient(settings.mps_socket)
    service.on_stop("MPS", mps.close)
    left = Left(settings.data_dir, settings.registry_dir, settings.mps_dir)
    assembled: list[Parts] = []

    def attempt() -> None:
        if not assembled:
            assembled.append(assemble_alone(settings, given, service))
        retire(assembled[0], mps, left)

    try:
        if settings.data_dir.exists():
            again_seconds = given.intervals.retire_again_seconds
            until_retired(attempt, service.stop_event.wait, progress.tell, again_seconds, TRIES)
        progress.tell("")
        _log.info("node is clean", driver=DRIVER_NAME, node=settings.node_name)
        service.run()
    finally:
        service.stop()


class _Progress:
    """Why the node is not clean, in one line; empty when it is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._why_not = "it has not been looked at yet"

    def tell(self, why_not: str) -> None:
        with self._lock:
            self._why_not = why_not

    def why_not(self) -> str:
        with self._lock:
            return self._why_not
