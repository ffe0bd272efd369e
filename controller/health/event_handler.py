"""Turns each event of the NVIDIA driver into its consequences: a fault, a metric, a check of the GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from controller.health.incident_store import IncidentStore
from driver.devices.region import Region
from driver.errors import NvmlError
from driver.hardware.gpu import Gpu, Inventory
from driver.health.judge import Incident, described, reported_class
from driver.nvml.health.calls import GpuEvent
from driver.nvml.mig import GpuInstance, Placement
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger

_log = get_logger(__name__)

# A check makes many NVML calls, and a fault may send many events.
CHECK_AGAIN_SECONDS = 5.0
"""The least time between two checks that events cause."""

# A program that crashes and restarts causes the same XID again and again.
PROGRAM_AGAIN_SECONDS = 3600.0
"""How long the same fault of programs on a GPU is not reported again."""

# Short, because the id of a destroyed GPU instance is given to the next one that is made.
_PLACES_SECONDS = 1.0
"""How long the placements of GPU instances are cached."""

# They carry no XID. What they are about (ECC counters, the recovery action) is read from NVML by a check.
_ONLY_CHECKED = frozenset({"single-bit-ecc", "double-bit-ecc", "operational"})
"""Events that only cause a check."""


class EventHandler:
    """Handles events, in the thread that waits for them.

    ``instances`` reads the GPU instances of a GPU from NVML and may raise NvmlError. ``count`` is called with
    each XID and its GPU, ``report`` with a sentence about the fault of a program, and ``check_now`` when the
    GPUs have to be checked.
    """

    def __init__(
        self,
        incidents: IncidentStore,
        instances: Callable[[PciAddress], tuple[GpuInstance, ...]],
        count: Callable[[PciAddress, int], None],
        report: Callable[[str], None],
        check_now: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._incidents = incidents
        self._instances = instances
        self._count = count
        self._report = report
        self._check_now = check_now
        self._now = now
        # Replaced as a whole by the thread of the checks, so that no lock is needed here.
        self._gpus: Mapping[str, Gpu] = {}
        self._unknown_uuids: set[str] = set()
        self._check_due: float | None = None
        self._checked_at = float("-inf")
        self._reported_at: dict[tuple[PciAddress, int], float] = {}
        self._places: dict[PciAddress, tuple[float, Mapping[int, Placement]]] = {}

    def gpus_checked(self, inventory: Inventory) -> None:
        """Take in the GPUs that a check found; called by the thread of the checks."""
        self._gpus = {gpu.uuid: gpu for gpu in inventory.gpus}
        self._unknown_uuids = set()

    def handle(self, event: GpuEvent) -> None:
        """Act on one event."""
        gpu = self._gpu(event)
        # If events were dropped, only a check can find what they were about.
        if event.dropped or gpu is None or event.kind in _ONLY_CHECKED:
            self._check_soon()
        if gpu is None:
            self._log_unknown(event)
        else:
            if event.xid is not None:
                self._count(gpu.pci, event.xid)
            self._judge(gpu, event)
        self.check_if_due()

    def seconds_left(self) -> float | None:
        """Seconds until ``check_if_due`` has to be called; None if no check is planned."""
        return None if self._check_due is None else max(0.0, self._check_due - self._now())

    def check_if_due(self) -> None:
        """Start the check that an event needs, if the last one is long enough ago."""
        now = self._now()
        if self._check_due is not None and now >= self._check_due:
            self._check_due, self._checked_at = None, now
            self._check_now()

    def _log_unknown(self, event: GpuEvent) -> None:
        """Log an event of a GPU that is not known, once until the next check."""
        if event.uuid not in self._unknown_uuids:
            self._unknown_uuids.add(event.uuid)
            _log.warning("an event of an unknown GPU", uuid=event.uuid, xid=event.xid)

    def _judge(self, gpu: Gpu, event: GpuEvent) -> None:
        reported, rules = reported_class(event), self._incidents.rules
        found = rules.class_of(event.xid, reported)
        if found == "ignore":
            return
        if found == "application":
            self._report_program(gpu, event)
            return
        # The check reads the recovery action that NVML recommends after this event.
        if event.xid is not None or reported is not None:
            self._check_soon()
        if found == "informational":
            return
        incident = Incident(self._scope(gpu, event), event.xid, reported)
        if self._incidents.report(incident):
            _log.warning("fault of a GPU", gpu=str(gpu.pci), what=described(event.xid), judged=found)

    def _report_program(self, gpu: Gpu, event: GpuEvent) -> None:
        what, now = (gpu.pci, event.xid or 0), self._now()
        last_at = self._reported_at.get(what)
        if last_at is None or now - last_at >= PROGRAM_AGAIN_SECONDS:
            self._reported_at[what] = now
            self._report(
                f"GPU {gpu.pci} is healthy, but a program on it failed: {described(event.xid)}; see the "
                "program's log"
            )

    def _gpu(self, event: GpuEvent) -> Gpu | None:
        """The GPU of an event, None if it is not known."""
        gpus = self._gpus
        # An event without a UUID is about the only GPU if the node has one; with several, it may be any.
        if event.uuid or len(gpus) != 1:
            return gpus.get(event.uuid)
        return next(iter(gpus.values()))

    def _scope(self, gpu: Gpu, event: GpuEvent) -> Region:
        """The part of the GPU that is hit: its partition if the event names one whose place is known."""
        if event.gpu_instance is None:
            return Region(gpu.pci)
        # Without a place the region is the whole GPU, which is the safe side.
        return Region(gpu.pci, self._place(gpu, event.gpu_instance))

    def _place(self, gpu: Gpu, instance: int) -> Placement | None:
        """The placement of the GPU instance now, else at the last check; None if neither is known."""
        now = self._now()
        known = self._places.get(gpu.pci)
        if known is None or now - known[0] > _PLACES_SECONDS:
            # Ids are reused, so what NVML lists now comes last and wins. An instance that was destroyed since
            # the event is only in the last check.
            before = gpu.mig.instances if gpu.mig is not None else ()
            try:
                fresh = self._instances(gpu.pci)
            except NvmlError as error:
                _log.warning("cannot list the GPU instances", gpu=str(gpu.pci), error=str(error))
                fresh = ()
            known = now, {one.id: one.placement for one in (*before, *fresh)}
            self._places[gpu.pci] = known
        return known[1].get(instance)

    def _check_soon(self) -> None:
        if self._check_due is None:
            self._check_due = self._checked_at + CHECK_AGAIN_SECONDS
