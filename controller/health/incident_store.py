"""Keeps what is wrong with the node's GPUs beyond what a look finds: faults that were told of, flapping."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from driver.health.damping import HOLD_SECONDS, Damping
from driver.health.health_rules import HealthRules
from driver.health.incident import verdicts_of
from driver.health.problems import verdicts
from driver.health.verdict import EFFECTS
from driver.health.xids import XID_CLASSES
from driver.process.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from driver.hardware.gpu import Gpu, Inventory
    from driver.health.incident import Incident
    from driver.health.verdict import Kind, Verdict
    from driver.nvml.pci_address import PciAddress

_log = get_logger(__name__)

_T = TypeVar("_T", bound="Hashable")


@dataclass(frozen=True, slots=True)
class Faults:
    """What is known of the faults that cannot be asked for, from events, resets, looks and stored slices.

    ``told_at`` has the faults that are not over, each with when it was told of last. ``over_at`` has when a
    GPU was reset, or when a single fault was found to be over: what was told of before that is over.
    """

    told_at: Mapping[Incident, float] = field(default_factory=dict)
    over_at: Mapping[PciAddress | Incident, float] = field(default_factory=dict)

    def merged(self, other: Faults) -> Faults:
        """What both know. The order in which things become known does not matter, nor how often they do."""
        over_at = _latest(self.over_at, other.over_at)
        told_at = _latest(self.told_at, other.told_at)
        return Faults(
            {
                one: at
                for one, at in told_at.items()
                if at >= max(over_at.get(one, -math.inf), over_at.get(one.scope.pci, -math.inf))
            },
            over_at,
        )


def _latest(some: Mapping[_T, float], others: Mapping[_T, float]) -> dict[_T, float]:
    return {**some, **{what: max(at, some.get(what, at)) for what, at in others.items()}}


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
        self._faults = Faults()
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
            now, is_known = self._now(), incident in self._faults.told_at
            if not is_known and not verdicts_of(incident, self._rules):
                return False
            self._learn(Faults({incident: now}))
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
            self._learn(Faults(over_at={pci: self._now() - age_seconds}), "the GPU was reset")
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
            now, before = self._now(), self._faults.told_at
            for incident, age_seconds in stored():
                if age_seconds < booted:
                    self._learn(Faults({incident: now - age_seconds}))
            for incident in self._faults.told_at.keys() - before.keys():
                _log.info("fault taken over", gpu=str(incident.scope.pci), xid=incident.xid)
                self._damping.is_bad(incident, now)
            changed = self._judge()
        if changed:
            self.on_change()

    def _end_what_is_well(self, gpus: dict[PciAddress, Gpu], began_at: float) -> None:
        """Drop the faults of GPUs for which NVML recommends nothing. The lock is held."""
        over: dict[PciAddress | Incident, float] = {}
        for incident, last_at in self._faults.told_at.items():
            gpu = gpus.get(incident.scope.pci)
            if gpu is None or gpu.condition.recovery_action != "none":
                continue
            quiet = began_at - last_at >= self._quiet_seconds
            if quiet and self._damping.is_well(incident, began_at):
                over[incident] = began_at
        self._learn(Faults(over_at=over), "NVML recommends nothing any more")

    def _learn(self, found: Faults, why: str = "") -> None:
        """Take in what is found; ``why`` is the reason for which faults are over now. The lock is held."""
        before, self._faults = self._faults, self._faults.merged(found)
        for incident in before.told_at.keys() - self._faults.told_at.keys():
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
            self._faults.told_at,
            key=lambda one: (-XID_CLASSES.index(one.xid_class(self._rules)), str(one)),
        )
        told = [verdict for one in worst_first for verdict in verdicts_of(one, self._rules)]
        judged = (*told, *self._lingering.values())
        changed = judged != self._verdicts
        self._verdicts = judged
        return changed
