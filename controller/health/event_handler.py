"""Turns each event of the NVIDIA driver into what follows from it: a fault, a metric, a check of the GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from controller.health.incident_store import IncidentStore
from driver.devices.region import Region
from driver.errors import NvmlError
from driver.hardware.gpu import Gpu, Inventory
from driver.health.incident import Incident, described, told_class
from driver.nvml.health.calls import GpuEvent
from driver.nvml.mig import GpuInstance, Placement
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger

_log = get_logger(__name__)

LOOK_AGAIN_SECONDS = 5.0
"""How long after a check that an event caused the next event may cause one: a check makes many NVML calls."""

PROGRAM_AGAIN_SECONDS = 3600.0
"""How long the same fault of programs on a GPU is not reported again: a restarting program repeats it."""

_PLACES_SECONDS = 1.0
"""How long a known place of an instance counts: the next instance may get the number of a destroyed one."""

_LOOKED_AT = frozenset({"single-bit-ecc", "double-bit-ecc", "operational"})
"""Events that say only that the GPU, or its memory, has to be checked."""


class EventHandler:
    """Handles events, in the thread that waits for them; the checks of the GPUs report in their own thread.

    ``instances`` asks NVML for the GPU instances of a GPU; it may raise NvmlError. ``count`` is called with
    each XID and its GPU, ``tell`` with the sentence about a fault of a program, ``look_now`` when the GPUs
    have to be checked.
    """

    def __init__(
        self,
        incidents: IncidentStore,
        instances: Callable[[PciAddress], tuple[GpuInstance, ...]],
        count: Callable[[PciAddress, int], None],
        tell: Callable[[str], None],
        look_now: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._incidents = incidents
        self._instances = instances
        self._count = count
        self._tell = tell
        self._look_now = look_now
        self._now = now
        self._gpus: Mapping[str, Gpu] = {}
        self._strangers: set[str] = set()
        self._look_due: float | None = None
        self._looked_at = float("-inf")
        self._reported_at: dict[tuple[PciAddress, int], float] = {}
        self._places: dict[PciAddress, tuple[float, Mapping[int, Placement]]] = {}

    def saw(self, inventory: Inventory) -> None:
        """Take in the GPUs that a check found."""
        self._gpus = {gpu.uuid: gpu for gpu in inventory.gpus}
        self._strangers = set()

    def hear(self, event: GpuEvent) -> None:
        """Take in one event."""
        gpu = self._gpu(event)
        if event.dropped or gpu is None or event.kind in _LOOKED_AT:
            self._look_soon()
        if gpu is None:
            self._wonder(event)
        else:
            if event.xid is not None:
                self._count(gpu.pci, event.xid)
            self._judge(gpu, event)
        self.look_if_due()

    def seconds_left(self) -> float | None:
        """Seconds until ``look_if_due`` has to be called; None while no check is due."""
        return None if self._look_due is None else max(0.0, self._look_due - self._now())

    def look_if_due(self) -> None:
        """Ask for the check that an event needs, once the last one is long enough ago."""
        now = self._now()
        if self._look_due is not None and now >= self._look_due:
            self._look_due, self._looked_at = None, now
            self._look_now()

    def _wonder(self, event: GpuEvent) -> None:
        """Log an event of a GPU that is not known, once until the next check."""
        if event.uuid not in self._strangers:
            self._strangers.add(event.uuid)
            _log.warning("event of a GPU that is not known", uuid=event.uuid, xid=event.xid)

    def _judge(self, gpu: Gpu, event: GpuEvent) -> None:
        told, rules = told_class(event), self._incidents.rules
        found = rules.class_of(event.xid, told)
        if found == "ignore":
            return
        if found == "application":
            self._tell_of_program(gpu, event)
            return
        if event.xid is not None or told is not None:
            self._look_soon()
        if found == "informational":
            return
        incident = Incident(self._scope(gpu, event), event.xid, told)
        if self._incidents.report(incident):
            _log.warning("fault of a GPU", gpu=str(gpu.pci), what=described(event.xid), judged=found)

    def _tell_of_program(self, gpu: Gpu, event: GpuEvent) -> None:
        what, now = (gpu.pci, event.xid or 0), self._now()
        last_at = self._reported_at.get(what)
        if last_at is None or now - last_at >= PROGRAM_AGAIN_SECONDS:
            self._reported_at[what] = now
            self._tell(f"GPU {gpu.pci} is well, a program on it is not: {described(event.xid)}; see its log")

    def _gpu(self, event: GpuEvent) -> Gpu | None:
        """The GPU of an event. An event that names none is about the node's only GPU; with several, None."""
        gpus = self._gpus
        if event.uuid or len(gpus) != 1:
            return gpus.get(event.uuid)
        return next(iter(gpus.values()))

    def _scope(self, gpu: Gpu, event: GpuEvent) -> Region:
        """What is hit: the partition where the event names one and it is known where that lies."""
        if event.gpu_instance is None:
            return Region(gpu.pci)
        return Region(gpu.pci, self._place(gpu, event.gpu_instance))

    def _place(self, gpu: Gpu, instance: int) -> Placement | None:
        """The place of the instance now, else its place at the last check; None if neither is known."""
        now = self._now()
        known = self._places.get(gpu.pci)
        if known is None or now - known[0] > _PLACES_SECONDS:
            before = gpu.mig.instances if gpu.mig is not None else ()
            try:
                fresh = self._instances(gpu.pci)
            except NvmlError as error:
                _log.warning("instances not listed", gpu=str(gpu.pci), error=str(error))
                fresh = ()
            known = now, {one.id: one.placement for one in (*before, *fresh)}
            self._places[gpu.pci] = known
        return known[1].get(instance)

    def _look_soon(self) -> None:
        if self._look_due is None:
            self._look_due = self._looked_at + LOOK_AGAIN_SECONDS
