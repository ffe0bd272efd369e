"""Checks the GPUs at intervals and sends their health to the kubelet's health stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Literal

from driver.devices.names import gpu_device_name
from driver.devices.node_state import BlockedPlacement
from driver.errors import DriverError, NvmlError
from driver.hardware.gate import LetGo
from driver.hardware.gpu import Gpu, Inventory
from driver.hardware.inventory import Discovery
from driver.health.problems import health
from driver.health.verdict import REASONS, Health, worse
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.devices.kinds.kind import HeldKinds
from kubeletplugin.kubelet.wire.health_board import DeviceHealth, HealthBoard
from kubeletplugin.reports.node_watch import NodeWatch

_WORDS: dict[str, Literal["healthy", "unhealthy", "unknown"]] = {
    "Healthy": "healthy",
    "Unhealthy": "unhealthy",
    "Unknown": "unknown",
}

_HEALTHY = Health("Healthy")

_REPLICA = "::"
"""What NVIDIA's device plugin writes between a UUID and a number, where it gives a device several times."""


class HealthCheck:
    """Remembers the GPUs that were seen, so that one that no longer answers is not forgotten.

    A partition, or a shared device, is as healthy as its GPU, except for faults that were reported of it
    alone. ``watch`` gets each result, too.
    """

    def __init__(
        self,
        discovery: Discovery,
        board: HealthBoard,
        pool: str,
        journal: Journal,
        watch: NodeWatch,
        kinds: HeldKinds,
        given_elsewhere: Callable[[], frozenset[str]],
    ) -> None:
        """``given_elsewhere()`` are the ids of what pods have from device plugins; it raises DriverError."""
        self._discovery = discovery
        self._board = board
        self._pool = pool
        self._journal = journal
        self._watch = watch
        self._kinds = kinds
        self._given_elsewhere = given_elsewhere
        self._seen: dict[PciAddress, Health] = {}
        self.gpus: tuple[Gpu, ...] = ()
        """Those that NVML listed in the last look."""
        self._told: Callable[[str], Health] = lambda _device: _HEALTHY
        self._log = get_logger("health")

    def hear_of(self, told: Callable[[str], Health]) -> None:
        """Have each look ask what was told of a device, by its name, beside what the look finds."""
        self._told = told

    def run_once(self) -> None:
        """Look at every GPU and send the complete list; nothing is sent while NVML is let go of."""
        entries = self._journal.held()
        try:
            inventory = self._discovery.snapshot()
        except LetGo:
            return
        except NvmlError as error:
            now = dict.fromkeys(self._seen, Health("Unknown", str(error)))
            self.gpus = ()
        else:
            self.gpus = inventory.gpus
            now = {gpu.pci: health(gpu.problems) for gpu in inventory.gpus}
            self._look_elsewhere(inventory)
            self._watch.saw(inventory, entries)
        # A GPU that was unbound, or taken out, while no claim has it is nobody's loss; nor is one that was
        # taken from the driver for a claim.
        held = {
            pci
            for entry in entries
            if entry.holds
            for device in entry.devices
            if not self._kinds.leaves_driver(device)
            for pci in device.gpus
        }
        for pci in self._seen.keys() - now.keys():
            if str(pci) in held:
                now[pci] = Health("Unhealthy", "the GPU is not there any more", REASONS["lost"])
        self._log_changes(now)
        self._seen = now
        held_devices = {
            (held.pool, held.allocated_name): worse(found, self._told(held.device))
            for entry in entries
            if entry.state == "prepared"  # else the device may be half made, or half taken back
            for held in entry.devices
            if (found := self._kinds.of(held).health(held, now)) is not None
        }
        names = {gpu_device_name(pci): found for pci, found in now.items()}
        gpus = {(self._pool, name): worse(found, self._told(name)) for name, found in names.items()}
        self._board.update(
            tuple(self._entries(sorted((held_devices | gpus).items(), key=lambda one: one[0])))
        )

    def _look_elsewhere(self, inventory: Inventory) -> None:
        """Ask what pods have from device plugins; the last answer stays while the kubelet is silent."""
        try:
            given = self._given_elsewhere()
        except DriverError as error:
            self._log.debug("devices of device plugins are not known", error=str(error))
            return
        self._watch.given_elsewhere(_given_by_device_plugin(inventory, given))

    def _entries(self, devices: Iterable[tuple[tuple[str, str], Health]]) -> Iterable[DeviceHealth]:
        checked = int(time.time())
        for (pool, device), found in devices:
            yield DeviceHealth(pool, device, _WORDS[found.word], checked, found.message, found.reason)

    def _log_changes(self, now: dict[PciAddress, Health]) -> None:
        for pci, found in now.items():
            before = self._seen.get(pci)
            if before != found and (before is not None or found.word != "Healthy"):
                self._log.warning(
                    "device health changed",
                    device=gpu_device_name(pci),
                    health=found.word,
                    message=found.message,
                )


def _given_by_device_plugin(
    inventory: Inventory, device_ids: Collection[str]
) -> tuple[BlockedPlacement, ...]:
    """The GPUs and partitions that containers have from a device plugin, which names them by UUID.

    A container keeps what it was given when its device plugin ends, and no scheduler counts it any more then.
    """
    return tuple(_blocked(inventory, {one.partition(_REPLICA)[0] for one in device_ids}))


def _blocked(inventory: Inventory, uuids: set[str]) -> Iterator[BlockedPlacement]:
    for gpu in inventory.gpus:
        if gpu.uuid in uuids:
            yield BlockedPlacement(
                gpu.pci, None, "device-plugin", f"a pod has GPU {gpu.pci} from a device plugin"
            )
        for partition in gpu.mig.partitions if gpu.mig else ():
            if partition.uuid in uuids:
                yield BlockedPlacement(
                    gpu.pci,
                    partition.gpu_instance.placement,
                    "device-plugin",
                    f"a pod has partition {partition.profile} of GPU {gpu.pci} from a device plugin",
                )
