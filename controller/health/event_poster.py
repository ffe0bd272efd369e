"""Tells people by events of the node when a GPU falls ill and when it is well again, once for each change."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from driver.event_reasons import EventReason
from driver.health.verdict import EFFECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from controller.observe.node_events import NodeEvents
    from driver.devices.region import Region
    from driver.health.verdict import Verdict

_TOLD_ELSEWHERE = frozenset({"unlicensed", "unmonitored"})
"""The license of a vGPU has events of its own; what we cannot ask is nobody's illness."""

_MEANINGS = {
    "None": "pods may go on",
    "NoSchedule": "no new pod gets it",
    "NoExecute": "no new pod gets it, and pods that have it are evicted",
}


class Teller:
    """Compares what is wrong now with what was told last; safe to use from every thread."""

    def __init__(self, events: NodeEvents) -> None:
        self._events = events
        self._lock = threading.Lock()
        self._told: dict[tuple[Region, str], str] = {}

    def tell(self, everything: Callable[[], Iterable[Verdict]]) -> None:
        """Tell of what is new and of what is over; a fault with several taints is told of once.

        ``everything`` says what is wrong now. It is asked under the lock: of two threads, the one that asked
        first must not tell last.
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
