"""Keeps the faults of the node's GPUs that NVML cannot be asked for.

They come from events of the NVIDIA driver and from the taints in the node's stored slices. A reset, of which
the kubelet plugin tells, ends those of its GPU. What came back again and again has to be well for longer and
longer before that is believed.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from driver.devices.node_state import Healed, NodeState
from driver.hardware.gpu import Gpu, Inventory
from driver.health.health_rules import HealthRules
from driver.health.incident import Incident, verdicts_of
from driver.health.placing import Marked, taken_over
from driver.health.problems import verdicts
from driver.health.verdict import EFFECTS, Kind, Verdict
from driver.health.xids import XID_CLASSES
from driver.kinds.kind import Kinds
from driver.kinds.registry import KINDS
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from driver.slices.specs import read_devices

_log = get_logger(__name__)

_T = TypeVar("_T", bound="Hashable")

FORGET_SECONDS = 3600.0
"""After so long without a return, a fault counts as a first one again."""

HOLD_SECONDS = (30.0, 600.0)


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults that NVML cannot be asked for, known from events, resets, checks and stored slices.

    ``reported_at`` has the faults that are not over, each with the time of its last report. ``over_at`` has
    when a GPU was reset, or when a single fault was found to be over: what was reported before that is over.
    """

    reported_at: Mapping[Incident, float] = field(default_factory=dict)
    over_at: Mapping[PciAddress | Incident, float] = field(default_factory=dict)

    def merged(self, other: Faults) -> Faults:
        """What both know. The order in which things become known does not matter, nor how often they do."""
        over_at = _latest(self.over_at, other.over_at)
        reported_at = _latest(self.reported_at, other.reported_at)
        return Faults(
            {
                one: at
                for one, at in reported_at.items()
                if at >= max(over_at.get(one, -math.inf), over_at.get(one.scope.pci, -math.inf))
            },
            over_at,
        )


def _latest(some: Mapping[_T, float], others: Mapping[_T, float]) -> dict[_T, float]:
    return {**some, **{what: max(at, some.get(what, at)) for what, at in others.items()}}


class IncidentStore:
    """The faults of the node's GPUs; safe to use from every thread.

    A reported fault stays until the GPU is reset, until the machine is restarted, or until a check that began
    ``quiet_seconds`` after the report finds that NVML recommends nothing for its GPU (earlier the NVIDIA
    driver may not have judged it). A fault that comes back again and again has to stay away for longer and
    longer, first and at most for ``hold_seconds``; the same holds for what a check finds. ``on_change`` is
    called without the lock whenever the verdicts may have changed. All times are of ``now``, which only goes
    forward.
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
        """The rules of the last check."""
        return self._rules

    def verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts for which devices get taints beside what the last check found; the worst comes first."""
        return self._verdicts

    def everything(self) -> tuple[Verdict, ...]:
        """All that is wrong: what was reported, and what the last check found."""
        with self._lock:
            found = [verdict for of_gpu in self._found.values() for verdict in of_gpu]
            return tuple(dict.fromkeys((*self._verdicts, *found)))

    def report(self, incident: Incident) -> bool:
        """Note a fault that happened now; whether it is a new one that taints devices."""
        with self._lock:
            now, is_known = self._now(), incident in self._faults.reported_at
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
        """Take in a check that began so many seconds ago, and the rules of that moment."""
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
        """Note that a GPU was reset so long ago: what was reported of it before is over.

        That holds also for what is taken over from slices later. The plugin reports a reset when it connects,
        which may be before the slices are known.
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
            now, before = self._now(), self._faults.reported_at
            for incident, age_seconds in stored():
                if age_seconds < booted:
                    self._learn(Faults({incident: now - age_seconds}))
            for incident in self._faults.reported_at.keys() - before.keys():
                _log.info("fault taken over", gpu=str(incident.scope.pci), xid=incident.xid)
                self._damping.is_bad(incident, now)
            changed = self._judge()
        if changed:
            self.on_change()

    def _end_what_is_well(self, gpus: dict[PciAddress, Gpu], began_at: float) -> None:
        """Drop the faults of GPUs for which NVML recommends nothing. The lock is held."""
        over: dict[PciAddress | Incident, float] = {}
        for incident, last_at in self._faults.reported_at.items():
            gpu = gpus.get(incident.scope.pci)
            if gpu is None or gpu.condition.recovery_action != "none":
                continue
            quiet = began_at - last_at >= self._quiet_seconds
            if quiet and self._damping.is_well(incident, began_at):
                over[incident] = began_at
        self._learn(Faults(over_at=over), "NVML recommends nothing any more")

    def _learn(self, found: Faults, why: str = "") -> None:
        """Merge what is found; ``why`` is the reason for which faults are over now. The lock is held."""
        before, self._faults = self._faults, self._faults.merged(found)
        for incident in before.reported_at.keys() - self._faults.reported_at.keys():
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
        """Work out the verdicts again; whether they have changed. The lock is held."""
        worst_first = sorted(
            self._faults.reported_at,
            key=lambda one: (-XID_CLASSES.index(one.xid_class(self._rules)), str(one)),
        )
        told = [verdict for one in worst_first for verdict in verdicts_of(one, self._rules)]
        judged = (*told, *self._lingering.values())
        changed = judged != self._verdicts
        self._verdicts = judged
        return changed


class EndedByReset:
    """Ends the faults of GPUs that the kubelet plugin has reset.

    The plugin's state has each GPU that was reset since the machine was started. Faults that were reported
    after the reset stay: both times are of this machine.
    """

    def __init__(self, incidents: IncidentStore) -> None:
        self._incidents = incidents
        self._known: frozenset[Healed] = frozenset()

    def plugin_tells(self, state: NodeState) -> None:
        """Take in the state of the node."""
        now = frozenset(state.healed)
        for one in now - self._known:
            self._incidents.healed(one.pci, max(0.0, time.time() - one.unix_milliseconds / 1000))
        self._known = now


@dataclass(slots=True)
class _Known:
    returns: int = 0
    bad: bool = True
    changed_at: float = 0.0


class Damping:
    """Remembers how often each thing was found bad again. Times are of one clock that only goes forward.

    After its first return a thing has to be well for the first of ``hold_seconds``, after many for the last.
    """

    def __init__(self, hold_seconds: tuple[float, float] = HOLD_SECONDS) -> None:
        self._hold_seconds = hold_seconds
        self._known: dict[Hashable, _Known] = {}

    def is_bad(self, what: Hashable, now_seconds: float) -> None:
        """Note that it is bad now."""
        known = self._known.get(what)
        if known is None or (not known.bad and now_seconds - known.changed_at > FORGET_SECONDS):
            self._known[what] = _Known(changed_at=now_seconds)
        elif not known.bad:
            known.returns += 1
            known.bad, known.changed_at = True, now_seconds

    def is_well(self, what: Hashable, now_seconds: float) -> bool:
        """Note that it is well now; whether that is believed already.

        The first time it is at once. After each return it has to be well for a while, twice as long as the
        time before, up to the most.
        """
        known = self._known.get(what)
        if known is None:
            return True
        if known.bad:
            known.bad, known.changed_at = False, now_seconds
        return now_seconds - known.changed_at >= held_seconds(known.returns, self._hold_seconds)

    def forget_old(self, now_seconds: float) -> None:
        """Drop what was well for FORGET_SECONDS."""
        for what, known in tuple(self._known.items()):
            if not known.bad and now_seconds - known.changed_at > FORGET_SECONDS:
                del self._known[what]

    def __len__(self) -> int:
        return len(self._known)


def held_seconds(returns: int, hold_seconds: tuple[float, float] = HOLD_SECONDS) -> float:
    """How long something has to be well that came back so often."""
    if returns == 0:
        return 0.0
    first, most = hold_seconds
    return float(min(first * 2 ** min(returns - 1, 30), most))


def stored_faults(
    slices: Iterable[Mapping[str, Any]], server_time: datetime, kinds: Kinds = KINDS
) -> tuple[tuple[Incident, float], ...]:
    """The faults, each with its age in seconds by the API server's clock, which gave the taints their times.

    A taint without a time that can be read is as if it were new: it may not be dropped for its age.
    """
    return taken_over(one for item in slices for one in _marked(item["spec"], server_time, kinds))


def booted_seconds() -> float:
    """How long ago this machine was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _marked(spec: Mapping[str, Any], server_time: datetime, kinds: Kinds) -> Iterator[Marked]:
    ages = {
        device["name"]: max((_age(taint, server_time) for taint in device["taints"]), default=0.0)
        for device in spec.get("devices") or []
        if device.get("taints")
    }
    devices, _ = read_devices([spec], kinds)
    return (Marked(device.regions, device.taints, ages.get(device.name, 0.0)) for device in devices)


def _age(taint: Mapping[str, Any], server_time: datetime) -> float:
    try:
        added = datetime.fromisoformat(str(taint["timeAdded"]))
        return max(0.0, (server_time - added).total_seconds())
    except (KeyError, ValueError, TypeError):
        return 0.0
