"""Waits for events of the NVIDIA driver, and posts an event of the Node when a GPU falls ill or is well
again.

NVML reports an XID only as an event, to the event sets that exist at that moment. It cannot be read later.
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

# The license of a vGPU has events of its own, and a GPU that cannot be monitored is not sick.
_POSTED_ELSEWHERE = frozenset({"unlicensed", "unmonitored"})

_MEANINGS = {
    "None": "running pods continue",
    "NoSchedule": "no new pod gets it",
    "NoExecute": "no new pod gets it, and pods that have it are evicted",
}

_log = get_logger(__name__)

# A wait without an event is simply repeated; closing the set ends it within a second.
_LONG_SECONDS = 3600.0
_AGAIN_SECONDS = (0.1, 15.0)
_SEND_NO_EVENTS = frozenset({"lost", "hung"})
"""The problems of GPUs that send no events, so that an event set is not made again because of them."""


def connect(
    incidents: IncidentStore,
    discovery: Discovery,
    events: NodeEvents,
    metrics: Metrics,
    on_change: Callable[[], None],
    check_now: Callable[[], None],
) -> tuple[EventListener, Callable[[Inventory, HealthRules, float], None]]:
    """The listener, and a function that must be called after each check of the GPUs.

    The function gets the GPUs, the rules, and how many seconds ago the check began. ``on_change`` is called
    when devices need other taints.
    """
    fault_events = FaultEvents(events)

    def changed() -> None:
        # Taints first: they keep pods away, the event only informs.
        on_change()
        fault_events.post_changes(incidents.verdicts)

    def instances(pci: PciAddress) -> tuple[GpuInstance, ...]:
        return discovery.on_gpu(pci, lambda device, watch: watch("gpu_instances", device.gpu_instances))

    incidents.on_change = changed
    handler = EventHandler(
        incidents,
        instances,
        lambda pci, xid: metrics.xid_seen(str(pci), xid),
        lambda sentence: events.post(EventReason.GPU_FAULT, sentence),
        check_now,
    )
    listener = EventListener(discovery.watch_events, handler, check_now)

    def gpus_checked(inventory: Inventory, rules: HealthRules, seconds: float) -> None:
        incidents.gpus_checked(inventory, rules, seconds)
        listener.gpus_checked(inventory)

    return listener, gpus_checked


class FaultEvents:
    """Posts the difference between what is wrong now and what was wrong before; safe in every thread."""

    def __init__(self, events: NodeEvents) -> None:
        self._events = events
        self._lock = threading.Lock()
        self._posted: dict[tuple[Region, str], str] = {}

    def post_changes(self, verdicts: Callable[[], Iterable[Verdict]]) -> None:
        """Post what is new and what is over; a fault with several taints is posted once."""
        with self._lock:
            # Called under the lock: otherwise a thread with an older answer could post last.
            now = _sentences(verdicts())
            for fault, sentence in now.items():
                if self._posted.get(fault) != sentence:
                    self._events.post(EventReason.GPU_SICK, sentence)
            for fault in self._posted.keys() - now.keys():
                region, message = fault
                self._events.post(EventReason.GPU_WELL, f"GPU {region.pci}: no longer true: {message}")
            self._posted = now


def _sentences(verdicts: Iterable[Verdict]) -> dict[tuple[Region, str], str]:
    """A sentence for each fault; a fault is identified by what it hits and by its message."""
    by_fault: dict[tuple[Region, str], list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.kind not in _POSTED_ELSEWHERE:
            by_fault.setdefault((verdict.scope, verdict.message), []).append(verdict)
    return {fault: _sentence(found) for fault, found in by_fault.items()}


def _sentence(found: list[Verdict]) -> str:
    taints = [one.taint for one in found]
    named = dict.fromkeys(f"{one.key}={one.value}:{one.effect}" for one in taints)
    effect = max((one.effect for one in taints), key=EFFECTS.index)
    return f"GPU {found[0].scope.pci}: {found[0].text}; {_MEANINGS[effect]} (taint {', '.join(named)})"


class EventListener:
    """Passes every event to ``handler``, from the first check of the GPUs until ``stop``.

    ``watch`` makes an event set of all GPUs that can send events. ``check_now`` is called when the GPUs have
    to be checked, because events may have been missed or a GPU is lost.
    """

    # When a GPU comes, or a wait fails, a new set is made, if possible before the old one is closed. No lock
    # is held while NVML is called: a call may hang, and stop() must not wait for it.

    def __init__(
        self, watch: Callable[[], EventSet], handler: EventHandler, check_now: Callable[[], None]
    ) -> None:
        self._watch = watch
        self._handler = handler
        self._check_now = check_now
        self._changed = threading.Condition()
        self._stopped = False
        # The UUIDs of the GPUs of the last check that can send events, and those for which a set was made.
        self._wanted: frozenset[str] = frozenset()
        self._tried: frozenset[str] = frozenset()
        self._events: EventSet | None = None
        self._backoff = Backoff(*_AGAIN_SECONDS)
        self._logged = ""

    def gpus_checked(self, inventory: Inventory) -> None:
        """Take in the GPUs of a check; if some can send events and are not in the set, a new set is made."""
        self._handler.gpus_checked(inventory)
        wanted = frozenset(
            gpu.uuid
            for gpu in inventory.gpus
            if not any(problem.reason in _SEND_NO_EVENTS for problem in gpu.problems)
        )
        with self._changed:
            self._wanted = wanted
            # A GPU that is gone is forgotten, so that it counts as new if it comes back.
            self._tried &= wanted
            # Closing the set makes the wait in the other thread end.
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
            if self._replace_set(events, wanted):
                self._log_once(f"receiving events of {len(events.watched())} of {len(wanted)} GPUs")
                # For what happened before the set was there.
                self._check_now()
                self._listen(events)

    def _replace_set(self, events: EventSet, wanted: frozenset[str]) -> bool:
        """Replace the old set by a new one; returns whether the new one still covers all GPUs."""
        with self._changed:
            old, self._events = self._events, events
            # gpus_checked() may have found another GPU, or the process may stop, while the set was made.
            good = not self._stopped and wanted <= self._tried
            if not good:
                self._close()
        # The new set exists already, so no event between the two is lost. Take what waits in the old one.
        if old is not None:
            with suppress(NvmlError):
                while (event := old.wait(0)) is not None:
                    self._handler.handle(event)
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
                    self._handler.check_if_due()
                else:
                    self._handler.handle(event)
        except NvmlError as error:
            # A wait fails with GPU_IS_LOST if any GPU of the set falls off the bus. Only a check finds which.
            if isinstance(error, GpuLost):
                self._check_now()
            # The end of the session has freed the set, so there is nothing left to take from it.
            if isinstance(error, SessionLost):
                with self._changed:
                    self._close()
            # It worked for a while, so the next failure is a new one.
            if time.monotonic() - began_at > _AGAIN_SECONDS[1]:
                self._backoff.reset()
            self._pause(error)

    def _has_gpus(self) -> bool:
        """Wait until there are GPUs that can send events; False if stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._wanted)
            return not self._stopped

    def _pause(self, error: NvmlError) -> None:
        """Wait before the next try, but not longer than until another GPU comes."""
        # These are normal: the session was closed for the kubelet plugin, or the driver is being upgraded.
        if not isinstance(error, (SessionLost, LetGo, DriverNotLoaded)):
            self._log_once(f"cannot receive events of GPUs: {error}")
        wait_seconds = self._backoff.next_seconds()
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or not self._wanted <= self._tried, wait_seconds)

    def _close(self) -> None:
        """Close the current set, if any. The lock is held; closing does not wait."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def _log_once(self, sentence: str) -> None:
        if sentence != self._logged:
            self._logged = sentence
            _log.info("events of GPUs", told=sentence)
