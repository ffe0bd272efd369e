"""Keeps what is wrong with the node's GPUs beyond what a look finds: faults that were told of, flapping."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from driver.health.damping import HOLD_SECONDS, Damping
from driver.health.health_rules import HealthRules
from driver.health.incident import verdicts_of
from driver.health.problems import verdicts
from driver.health.verdict import EFFECTS
from driver.health.xids import XID_CLASSES
from driver.process.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from driver.hardware.gpu import Gpu, Inventory
    from driver.health.incident import Incident
    from driver.health.verdict import Kind, Verdict
    from driver.nvml.pci_address import PciAddress

_log = get_logger(__name__)


class Book:
    """The faults of the node's GPUs; safe to use from every thread.

    A fault that was told of stays until a look that began ``quiet_seconds`` after it hears that NVML
    recommends nothing for its GPU (earlier the NVIDIA driver may not have judged it), until the GPU was
    reset, or until the machine was restarted. One that
    comes back again and again has to be well for longer and longer, first and at most for ``hold_seconds``;
    so has what a look finds. ``on_change`` is called without the lock whenever the verdicts may have
    changed. All times are of ``now``, which only goes forward.
    """

    def __init__(
        self,
        on_change: Callable[[], None] = lambda: None,
        *,
        quiet_seconds: float = 5.0,
        hold_seconds: tuple[float, float] = HOLD_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.on_change = on_change
        self._quiet_seconds = quiet_seconds
        self._now = now
        self._lock = threading.Lock()
        self._rules = HealthRules()
        # When each was told of for the last time.
        self._incidents: dict[Incident, float] = {}
        self._healed: dict[PciAddress, float] = {}
        self._damping = Damping(hold_seconds)
        self._found: dict[PciAddress, tuple[Verdict, ...]] = {}
        self._lingering: dict[tuple[PciAddress, Kind], Verdict] = {}
        self._verdicts: tuple[Verdict, ...] = ()
        self._taken_over = False

    @property
    def rules(self) -> HealthRules:
        """The rules of the last look."""
        return self._rules

    def verdicts(self) -> tuple[Verdict, ...]:
        """What devices are to be tainted for beside what the last look found; the worst comes first."""
        return self._verdicts

    def everything(self) -> tuple[Verdict, ...]:
        """All that is wrong: what was told of, and what the last look found."""
        with self._lock:
            found = [verdict for of_gpu in self._found.values() for verdict in of_gpu]
            return tuple(dict.fromkeys((*self._verdicts, *found)))

    def told(self, incident: Incident) -> bool:
        """Note a fault that happened now; whether it is a new one that taints devices."""
        with self._lock:
            now, is_known = self._now(), incident in self._incidents
            if not is_known and not verdicts_of(incident, self._rules):
                return False
            self._incidents[incident] = now
            self._damping.is_bad(incident, now)
            if is_known:
                return False
            self._judge()
        self.on_change()
        return True

    def looked(self, inventory: Inventory, rules: HealthRules, seconds: float) -> None:
        """Take in a look that began so many seconds ago, and the rules of that moment."""
        with self._lock:
            began_at = self._now() - seconds
            self._rules = rules
            gpus = {gpu.pci: gpu for gpu in inventory.gpus}
            self._end_what_is_well(gpus, began_at)
            self._damp(gpus, self._now())
            changed = self._judge()
        if changed:
            self.on_change()

    def healed(self, pci: PciAddress, age_seconds: float) -> None:
        """Note that a GPU was reset so long ago: what was told of it before is over.

        So is what is taken over later. The plugin tells of a reset when it connects, which may be before the
        slices are known.
        """
        with self._lock:
            healed_at = self._now() - age_seconds
            self._healed[pci] = max(healed_at, self._healed.get(pci, healed_at))
            over = [
                one
                for one, last_at in self._incidents.items()
                if one.scope.pci == pci and last_at <= healed_at
            ]
            self._drop(over, "the GPU was reset")
            changed = self._judge()
        if changed:
            self.on_change()

    def take_over(self, stored: Callable[[], Iterable[tuple[Incident, float]]], booted: float) -> None:
        """Note what is stored of faults, with their ages in seconds: once, before anything is written.

        The machine was started ``booted`` seconds ago, and what is older is over.
        """
        with self._lock:
            if self._taken_over:
                return
            self._taken_over = True
            now = self._now()
            for incident, age_seconds in stored():
                is_over = now - age_seconds <= self._healed.get(incident.scope.pci, -math.inf)
                if age_seconds < booted and not is_over and incident not in self._incidents:
                    _log.info("fault taken over", gpu=str(incident.scope.pci), xid=incident.xid)
                    self._incidents[incident] = now - age_seconds
                    self._damping.is_bad(incident, now)
            changed = self._judge()
        if changed:
            self.on_change()

    def _end_what_is_well(self, gpus: dict[PciAddress, Gpu], began_at: float) -> None:
        """Drop the faults of GPUs for which NVML recommends nothing. The lock is held."""
        over = []
        for incident, last_at in self._incidents.items():
            gpu = gpus.get(incident.scope.pci)
            if gpu is None or gpu.condition.recovery_action != "none":
                continue
            quiet = began_at - last_at >= self._quiet_seconds
            if quiet and self._damping.is_well(incident, began_at):
                over.append(incident)
        self._drop(over, "NVML recommends nothing any more")

    def _drop(self, over: Iterable[Incident], why: str) -> None:
        for incident in over:
            del self._incidents[incident]
            self._damping.is_well(incident, self._now())
            _log.info("fault is over", gpu=str(incident.scope.pci), xid=incident.xid, reason=why)

    def _damp(self, gpus: dict[PciAddress, Gpu], now: float) -> None:
        """Keep what was found wrong again and again until it was well for long enough. The lock is held."""
        self._found = {
            pci: tuple(self._effective(one) for one in verdicts(pci, gpu.problems))
            for pci, gpu in gpus.items()
            if gpu.problems
        }
        found: dict[tuple[PciAddress, Kind], Verdict] = {}
        for pci, of_gpu in self._found.items():
            for verdict in sorted(of_gpu, key=lambda one: EFFECTS.index(one.effect)):
                found[pci, verdict.kind] = verdict
        for what in found:
            self._damping.is_bad(what, now)
        known = {what: verdict for what, verdict in self._lingering.items() if what[0] in gpus}
        for what in known.keys() - found.keys():
            if self._damping.is_well(what, now):
                del known[what]
        self._lingering = known | found
        self._damping.forget_old(now)

    def _effective(self, verdict: Verdict) -> Verdict:
        return replace(verdict, effect=self._rules.effect(verdict.kind, verdict.effect))

    def _judge(self) -> bool:
        """Work out the verdicts anew; whether they have changed. The lock is held."""
        worst_first = sorted(
            self._incidents, key=lambda one: XID_CLASSES.index(one.xid_class(self._rules)), reverse=True
        )
        told = [verdict for one in worst_first for verdict in verdicts_of(one, self._rules)]
        judged = (*told, *self._lingering.values())
        changed = judged != self._verdicts
        self._verdicts = judged
        return changed
