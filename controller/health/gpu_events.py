"""Hears events of GPUs from the NVIDIA driver in a thread, and posts an event of the node for each change.

A GPU that falls ill and one that is well again are each posted once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from controller.health.event_handler import EventHandler
from controller.health.incident_store import IncidentStore
from controller.observe.node_events import NodeEvents
from driver.devices.region import Region
from driver.errors import NvmlError
from driver.event_reasons import EventReason
from driver.hardware.gate import LetGo
from driver.hardware.gpu import Inventory
from driver.hardware.inventory import Discovery
from driver.health.health_rules import HealthRules
from driver.health.verdict import EFFECTS, Verdict
from driver.kube.backoff import Backoff
from driver.nvml.api import DriverNotLoaded, GpuLost, SessionLost
from driver.nvml.health.calls import EventSet
from driver.nvml.mig import GpuInstance
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from driver.process.metrics import Metrics

_TOLD_ELSEWHERE = frozenset({"unlicensed", "unmonitored"})
"""The license of a vGPU has events of its own; a GPU that cannot be monitored is not sick."""

_MEANINGS = {
    "None": "pods may go on",
    "NoSchedule": "no new pod gets it",
    "NoExecute": "no new pod gets it, and pods that have it are evicted",
}

_log = get_logger(__name__)

_LONG_SECONDS = 3600.0
_AGAIN_SECONDS = (0.1, 15.0)
_DEAF = frozenset({"lost", "hung"})
"""What is wrong with a GPU of which no event can be expected."""


def connect(
    incidents: IncidentStore,
    discovery: Discovery,
    events: NodeEvents,
    metrics: Metrics,
    on_change: Callable[[], None],
    look_now: Callable[[], None],
) -> tuple[EventListener, Callable[[Inventory, HealthRules, float], None]]:
    """The listener, and a function that has to be called after each check of the GPUs.

    The function takes the GPUs, the rules, and how many seconds ago the check began. ``on_change`` is called
    when devices need other taints.
    """
    fault_events = FaultEvents(events)

    def changed() -> None:
        on_change()
        fault_events.tell(incidents.everything)

    def instances(pci: PciAddress) -> tuple[GpuInstance, ...]:
        return discovery.on_gpu(pci, lambda device, watch: watch("gpu_instances", device.gpu_instances))

    incidents.on_change = changed
    handler = EventHandler(
        incidents,
        instances,
        lambda pci, xid: metrics.xid_seen(str(pci), xid),
        lambda sentence: events.post(EventReason.GPU_FAULT, sentence),
        look_now,
    )
    listener = EventListener(discovery.watch_events, handler, look_now)

    def looked(inventory: Inventory, rules: HealthRules, seconds: float) -> None:
        incidents.looked(inventory, rules, seconds)
        listener.saw(inventory)

    return listener, looked


class FaultEvents:
    """Compares what is wrong now with what was posted last; safe to use from every thread."""

    def __init__(self, events: NodeEvents) -> None:
        self._events = events
        self._lock = threading.Lock()
        self._told: dict[tuple[Region, str], str] = {}

    def tell(self, everything: Callable[[], Iterable[Verdict]]) -> None:
        """Post what is new and what is over; a fault with several taints is posted once.

        ``everything`` says what is wrong now. It is called under the lock: of two threads, the one that
        called first must not post last.
        """
        with self._lock:
            now = _sentences(everything())
            for fault, sentence in now.items():
                if self._told.get(fault) != sentence:
                    self._events.post(EventReason.GPU_SICK, sentence)
            for fault in self._told.keys() - now.keys():
                region, message = fault
                self._events.post(EventReason.GPU_WELL, f"GPU {region.pci}: this is over: {message}")
            self._told = now


def _sentences(verdicts: Iterable[Verdict]) -> dict[tuple[Region, str], str]:
    """A sentence for each fault, which is known by what it hits and by its message."""
    by_fault: dict[tuple[Region, str], list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.kind not in _TOLD_ELSEWHERE:
            by_fault.setdefault((verdict.scope, verdict.message), []).append(verdict)
    return {fault: _sentence(found) for fault, found in by_fault.items()}


def _sentence(found: list[Verdict]) -> str:
    taints = [one.taint for one in found]
    named = dict.fromkeys(f"{one.key}={one.value}:{one.effect}" for one in taints)
    effect = max((one.effect for one in taints), key=EFFECTS.index)
    return f"GPU {found[0].scope.pci}: {found[0].text}; {_MEANINGS[effect]} (taint {', '.join(named)})"


class EventListener:
    """Passes every event to ``handler``, from the first check of the GPUs until ``stop``, while ``run`` runs.

    ``watch`` makes an event set of all GPUs that can report. When its waits fail, or other GPUs have come, a
    new one is made, if possible before the old one is closed, so that no event in between is lost.
    ``look_now`` is called when the GPUs have to be checked, since events may have been missed or a GPU is
    lost. No lock is held while NVML is waited for.
    """

    def __init__(
        self, watch: Callable[[], EventSet], handler: EventHandler, look_now: Callable[[], None]
    ) -> None:
        self._watch = watch
        self._handler = handler
        self._look_now = look_now
        self._changed = threading.Condition()
        self._stopped = False
        self._wanted: frozenset[str] = frozenset()
        self._tried: frozenset[str] = frozenset()
        self._events: EventSet | None = None
        self._backoff = Backoff(*_AGAIN_SECONDS)
        self._told = ""

    def saw(self, inventory: Inventory) -> None:
        """Take in a check: when GPUs have come that can report events, a new set is made."""
        self._handler.saw(inventory)
        wanted = frozenset(
            gpu.uuid for gpu in inventory.gpus if not any(problem.reason in _DEAF for problem in gpu.problems)
        )
        with self._changed:
            self._wanted = wanted
            self._tried &= wanted
            if not wanted <= self._tried:
                self._close()
                self._changed.notify_all()

    def stop(self) -> None:
        """Make ``run`` return."""
        with self._changed:
            self._stopped = True
            self._close()
            self._changed.notify_all()

    def run(self) -> None:
        """Wait for events and pass them on."""
        while self._has_gpus():
            with self._changed:
                self._tried = wanted = self._wanted
            try:
                events = self._watch()
            except NvmlError as error:
                self._pause(error)
                continue
            if self._takes(events, wanted):
                self._tell(f"events of {len(events.watched())} of {len(wanted)} GPUs are heard")
                self._look_now()  # at what happened before
                self._listen(events)

    def _takes(self, events: EventSet, wanted: frozenset[str]) -> bool:
        """Replace the old set by a new one; whether the new one still covers all GPUs."""
        with self._changed:
            old, self._events = self._events, events
            good = not self._stopped and wanted <= self._tried
            if not good:
                self._close()
        if old is not None:
            with suppress(NvmlError):
                while (event := old.wait(0)) is not None:
                    self._handler.hear(event)
            old.close()
        return good

    def _listen(self, events: EventSet) -> None:
        """Pass events on until a wait fails."""
        began_at = time.monotonic()
        try:
            while True:
                left = self._handler.seconds_left()
                event = events.wait(_LONG_SECONDS if left is None else left)
                if event is None:
                    self._handler.look_if_due()
                else:
                    self._handler.hear(event)
        except NvmlError as error:
            if isinstance(error, GpuLost):
                self._look_now()
            if isinstance(error, SessionLost):
                with self._changed:
                    self._close()
            if time.monotonic() - began_at > _AGAIN_SECONDS[1]:
                self._backoff.reset()
            self._pause(error)

    def _has_gpus(self) -> bool:
        """Wait until there are GPUs that can report events; False when stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._wanted)
            return not self._stopped

    def _pause(self, error: NvmlError) -> None:
        """Wait before the next try, less long when GPUs come."""
        if not isinstance(error, (SessionLost, LetGo, DriverNotLoaded)):
            self._tell(f"events are not heard: {error}")
        wait_seconds = self._backoff.next_seconds()
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or not self._wanted <= self._tried, wait_seconds)

    def _close(self) -> None:
        """Close the set that there is. The lock is held; closing does not wait."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def _tell(self, sentence: str) -> None:
        if sentence != self._told:
            self._told = sentence
            _log.info("events of GPUs", told=sentence)
