"""Waits until NVIDIA's driver has left the node, before a socket is opened.

It connects the wait in `kubeletplugin/migration/takeover.py` to the node and the cluster.

On a node that never had that driver, this only lists two folders, and imports nothing more.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driver.devices.names import DRIVER_NAME
from kubeletplugin.migration.other_driver import other_driver
from kubeletplugin.process_inputs import Intervals
from kubeletplugin.settings import Settings

if TYPE_CHECKING:
    from driver.hardware.gpu import Inventory
    from driver.kube.client import KubeClient
    from kubeletplugin.kubelet.wire.containers import ClaimInUse
    from kubeletplugin.migration.takeover import Origin, Surroundings, TakeOver


def wait_for_nvidia_driver(settings: Settings, intervals: Intervals) -> TakeOver | None:
    """Return once no other driver of this name is on the node, with what to take over from it or None.

    Raises ConfigError if the flags do not lead to an API server. A signal ends the process meanwhile.
    """
    if not settings.former_checkpoint.exists() and _other(settings) is None:
        return None
    from driver.event_reasons import EventReason
    from driver.kube.client import KubeClient
    from driver.kube.events import EventRecorder, Reference
    from kubeletplugin.migration.takeover import WaitPorts, wait_for_takeover

    said = [_LOOKS]

    client = KubeClient.connect(settings.kubeconfig, user_agent="gpu-dra-kubeletplugin")
    recorder = EventRecorder(client, "gpu-dra-kubeletplugin", settings.node_name)
    about = Reference("v1", "Node", settings.node_name, settings.node_name)
    node = _Node(settings, client)

    def tell(text: str) -> None:
        said[0] = text
        recorder.post(about, EventReason.OTHER_DRIVER, text)

    # A daemon thread: it must not keep the process alive after a signal.
    poster = threading.Thread(target=recorder.run, name="events", daemon=True)
    poster.start()
    try:
        with _ended_by_signals(), _answering_probes(settings.health_addr, said):
            return wait_for_takeover(
                WaitPorts(
                    lambda: _other(settings),
                    node.decide,
                    tell,
                    threading.Event().wait,
                    time.monotonic,
                ),
                settings.former_checkpoint,
                intervals.check_seconds,
            )
    finally:
        recorder.stop()
        poster.join(_POST_SECONDS)
        client.close()


_POST_SECONDS = 2.0
_LOOKS = "the state of NVIDIA's driver on this node is being checked"


def _other(settings: Settings) -> Path | None:
    return other_driver(settings.data_dir, settings.registry_dir.absolute(), DRIVER_NAME)


class _Node:
    """Reads what the decision needs from the node and the cluster."""

    def __init__(self, settings: Settings, client: KubeClient) -> None:
        self._settings = settings
        self._client = client
        self._origins: dict[str, Origin] = {}

    def decide(self) -> TakeOver:
        """What to do with the claims in the checkpoint; raises DriverError."""
        from driver.process.boot import running_boot_id
        from kubeletplugin.migration.checkpoint import Checkpoint, read_checkpoint
        from kubeletplugin.migration.takeover import decide

        found = read_checkpoint(self._settings.former_checkpoint) or Checkpoint(())
        return decide(found, running_boot_id(), self._surroundings)

    def _surroundings(self) -> Surroundings:
        from kubeletplugin.claims.journal.entry import driver_generation
        from kubeletplugin.migration.takeover import Surroundings

        settings = self._settings
        inventory = self._inventory()
        # Only partitions need the slices: whole GPUs are recognised by UUID.
        if any(gpu.mig_enabled for gpu in inventory.gpus):
            # Remembered: the slices may be gone the next time, since their driver is on its way out.
            self._origins |= self._slices()
        generation = driver_generation(settings.sysfs_root)
        return Surroundings(settings.node_name, generation, inventory, dict(self._origins), self._users())

    def _inventory(self) -> Inventory:
        from driver.hardware.inventory import Discovery
        from driver.nvml.deadline import Guard
        from fakegpu.nvml.flag import nvml_from_flag

        guard, nvml = Guard(), nvml_from_flag(self._settings.nvml, self._settings.roots)
        discovery = Discovery(nvml, self._settings.sysfs_root, guard)
        try:
            return discovery.snapshot()
        finally:
            # NVIDIA's driver may still run and change GPUs, so NVML is open only while it is read.
            discovery.close()
            guard.close()

    def _slices(self) -> dict[str, Origin]:
        from driver.kube.paths import RESOURCE_SLICES
        from kubeletplugin.migration.takeover import origins

        fields = f"spec.driver={DRIVER_NAME},spec.nodeName={self._settings.node_name}"
        answer: dict[str, Any] = self._client.get(RESOURCE_SLICES, {"fieldSelector": fields})
        return origins(answer.get("items") or (), self._settings.node_name)

    def _users(self) -> tuple[ClaimInUse, ...]:
        """The pods that have the claims, from the kubelet; none if it does not answer."""
        from driver.process.log import get_logger
        from kubeletplugin.kubelet.podresources import PodResourcesUnavailable, claims_in_use

        try:
            return claims_in_use(self._settings.pod_resources_socket, DRIVER_NAME)
        except PodResourcesUnavailable as error:
            get_logger("predecessor").warning("cannot read which pods use claims", error=str(error))
            return ()


@contextmanager
def _answering_probes(address: str, said: list[str]) -> Iterator[None]:
    """Answer the kubelet's probes meanwhile: started, alive, and not ready because of the last reason."""
    # A liveness probe that failed would make the kubelet restart the container for nothing.
    if not address:
        yield
        return
    from driver.process.probes import Probes, endpoint

    served = endpoint(address, Probes(lambda: "", lambda: "", lambda: said[0]))
    thread = threading.Thread(target=served.run, name="probes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        served.stop()
        thread.join(_POST_SECONDS)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGINT end the process at once."""
    # The kernel does not apply the default action of a signal to process 1 of a container.
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: sys.exit(0)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
