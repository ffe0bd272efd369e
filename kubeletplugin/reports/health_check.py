"""Checks the GPUs at intervals and sends their health to the kubelet's health stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping

from driver.devices.names import gpu_device_name
from driver.devices.node_state import BlockedPlacement
from driver.errors import DriverError, NvmlError
from driver.hardware.gate import LetGo
from driver.hardware.gpu import Gpu, Inventory
from driver.hardware.inventory import Discovery
from driver.health.judge import verdicts_of_problems
from driver.health.verdict import REASONS, Health, health_of, worse
from driver.kinds.whole import WHOLE
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.devices.kinds.kind import NodeKinds
from kubeletplugin.kubelet.wire.health_board import DeviceHealth, HealthBoard
from kubeletplugin.reports.node_watch import NodeWatch

_HEALTHY = Health("Healthy")

_RELOADED = Health(
    "Unhealthy",
    "the NVIDIA driver was loaded anew after the claim was prepared, and what was made for it is gone: "
    "delete the pod",
    "DriverReloaded",
)

_REPLICA = "::"
"""NVIDIA's device plugin puts this between a UUID and a number if it gives a device to several pods."""


class HealthCheck:
    """Checks the GPUs, and remembers them, so that one that no longer answers is still reported.

    A partition or a shared device has the health of its GPU, except for faults that are reported for it
    alone. ``watch`` gets each inventory as well.
    """

    def __init__(
        self,
        discovery: Discovery,
        board: HealthBoard,
        pool: str,
        journal: Journal,
        watch: NodeWatch,
        kinds: NodeKinds,
        given_elsewhere: Callable[[], frozenset[str]],
    ) -> None:
        """``given_elsewhere()`` returns the ids of pods' devices from device plugins; raises DriverError."""
        self._discovery = discovery
        self._board = board
        self._pool = pool
        self._journal = journal
        self._watch = watch
        self._kinds = kinds
        self._given_elsewhere = given_elsewhere
        # The result of the last check.
        self._seen: dict[PciAddress, Health] = {}
        self.gpus: tuple[Gpu, ...] = ()
        """The GPUs that NVML listed in the last check."""
        self._reported: Callable[[str], Health] = lambda _device: _HEALTHY
        self._log = get_logger("health")

    def add_reported(self, reported: Callable[[str], Health]) -> None:
        """Combine each result with ``reported(device)``, the health that others report for a device."""
        self._reported = reported

    def run_once(self) -> None:
        """Check every GPU and send the complete list; nothing is sent while NVML is closed for a while."""
        # The journal is read before the hardware: see NodeWatch.saw.
        entries = self._journal.held()
        try:
            inventory = self._discovery.snapshot()
        except LetGo:
            return
        except NvmlError as error:
            # Without an answer nothing is known of any GPU, whatever it was before.
            now = dict.fromkeys(self._seen, Health("Unknown", str(error)))
            self.gpus = ()
        else:
            self.gpus = inventory.gpus
            now = {gpu.pci: health_of(verdicts_of_problems(gpu.pci, gpu.problems)) for gpu in inventory.gpus}
            self._read_device_plugins(inventory)
            self._watch.saw(inventory, entries)
        # A missing GPU is reported only if a claim has it. A GPU without a claim may have been unbound or
        # removed, and one that was taken from the driver for its claim is not listed by NVML.
        held = {
            pci
            for entry in entries
            if entry.holds
            for device in entry.devices
            if not device.leaves_driver
            for pci in device.gpus
        }
        for pci in self._seen.keys() - now.keys():
            # NVML no longer lists a GPU that fell off the bus.
            if str(pci) in held:
                now[pci] = Health("Unhealthy", "the GPU does not exist any more", REASONS["lost"])
        self._log_changes(now)
        self._seen = now
        held_devices = {
            (held.pool, held.allocated_name): found
            for entry in entries
            if entry.state == "prepared"  # otherwise the device may be half made or half destroyed
            for held in entry.devices
            if (found := self._of_held(entry, held, now)) is not None
        }
        # Devices of claims and whole GPUs; partitions and shares that nobody holds are not reported.
        names = {gpu_device_name(pci): found for pci, found in now.items()}
        gpus = {(self._pool, name): worse(found, self._reported(name)) for name, found in names.items()}
        checked = int(time.time())
        self._board.update(
            tuple(
                DeviceHealth(*key, found, checked)
                for key, found in sorted((held_devices | gpus).items(), key=lambda one: one[0])
            )
        )

    def _of_held(self, entry: Entry, held: HeldDevice, gpus: Mapping[PciAddress, Health]) -> Health | None:
        """The health of a claim's device; None if its kind knows none."""
        found = self._kinds.of(held).health(held, gpus)
        if found is None:
            return None
        # A whole GPU that nobody shares is as it was. All else was made or set for the claim, or by an admin.
        outlives = held.kind == WHOLE.word and held.share is None
        if not outlives and not self._journal.is_live(entry, held):
            return _RELOADED
        return worse(found, self._reported(held.device))

    def _read_device_plugins(self, inventory: Inventory) -> None:
        """Ask the kubelet what pods have from device plugins; without an answer the last one stays."""
        try:
            given = self._given_elsewhere()
        except DriverError as error:
            self._log.debug("cannot read the devices of device plugins", error=str(error))
            return
        self._watch.given_elsewhere(_given_by_device_plugin(inventory, given))

    def _log_changes(self, now: dict[PciAddress, Health]) -> None:
        for pci, found in now.items():
            before = self._seen.get(pci)
            # The first healthy result is not a change.
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
    """The GPUs and partitions that containers have from a device plugin, which names them by UUID."""
    # A container keeps its devices when the device plugin ends, but the scheduler no longer counts them.
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
