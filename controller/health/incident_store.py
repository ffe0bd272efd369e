"""Keeps the faults of the node's GPUs that NVML reports only once.

They come from events of the NVIDIA driver and, after a start of the controller, from the taints in the node's
stored slices. A reset, which the kubelet plugin reports, ends the faults of its GPU. A fault that comes back
again and again has to stay away for longer and longer before it counts as over.
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
from driver.health.placing import TaintedDevice, incidents_in
from driver.health.problems import verdicts
from driver.health.verdict import EFFECTS, Kind, Verdict
from driver.health.xid_verdicts import Incident, verdicts_of
from driver.health.xids import XID_CLASSES
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from driver.slices.specs import read_devices

_log = get_logger(__name__)

_T = TypeVar("_T", bound="Hashable")

FORGET_SECONDS = 3600.0
"""After this time without a return, a fault counts as a first one again."""

HOLD_SECONDS = (30.0, 600.0)


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults that are known from events, resets, checks and stored slices.

    ``reported_at`` has the faults that are not over, each with the time of its last report. ``over_at`` has
    the time at which a GPU was reset, or a single fault was found to be over; faults that were reported
    before that are over.
    """

    # Events, resets and stored slices become known in any order, and a thread may bring each of them twice.
    # merged() is made so that the result is always the same.

    reported_at: Mapping[Incident, float] = field(default_factory=dict)
    over_at: Mapping[PciAddress | Incident, float] = field(default_factory=dict)

    def merged(self, other: Faults) -> Faults:
        """Both together. It does not matter in which order facts are merged, or how often."""
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
    ``quiet_seconds`` after the report finds that NVML recommends no action for its GPU. A fault that comes
    back again and again has to stay away for longer and longer: first for the first of ``hold_seconds``, at
    most for the second. The same is true of problems that a check finds. ``on_change`` is called without the
    lock whenever the verdicts may have changed.
    """

    def __init__(
        self,
        on_change: Callable[[], None] = lambda: None,
        *,
        quiet_seconds: float = 5.0,
        hold_seconds: tuple[float, float] = HOLD_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        # All times are of ``now``: a change of the time of day must neither end a fault nor keep it.
        self.on_change = on_change
        self._quiet_seconds = quiet_seconds
        self._now = now
        self._lock = threading.Lock()
        self._rules = HealthRules()
        self._faults = Faults()
        self._damping = Damping(hold_seconds)
        # What the last check found, and what it or earlier checks found and damping still keeps.
        self._found: dict[PciAddress, tuple[Verdict, ...]] = {}
        self._lingering: dict[tuple[PciAddress, Kind], Verdict] = {}
        self._verdicts: tuple[Verdict, ...] = ()
        self._taken_over = False

    @property
    def rules(self) -> HealthRules:
        """The rules of the last check."""
        return self._rules

    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts for which devices get taints beside those of the last check; the worst comes first."""
        return self._verdicts

    def everything(self) -> tuple[Verdict, ...]:
        """Everything that is wrong: what was reported, and what the last check found."""
        with self._lock:
            found = [verdict for of_gpu in self._found.values() for verdict in of_gpu]
            return tuple(dict.fromkeys((*self._verdicts, *found)))

    def report(self, incident: Incident) -> bool:
        """Note a fault that happens now; returns whether it is a new one that taints devices."""
        with self._lock:
            now, is_known = self._now(), incident in self._faults.reported_at
            # An XID that the rules take for harmless is not kept.
            if not is_known and not verdicts_of(incident, self._rules):
                return False
            self._learn(Faults({incident: now}))
            self._damping.note_bad(incident, now)
            if is_known:
                return False
            self._judge()
        # Without the lock: it wakes the publisher, which calls back for the verdicts.
        self.on_change()
        return True

    def gpus_checked(self, inventory: Inventory, rules: HealthRules, seconds: float) -> None:
        """Take in the GPUs of a check that began this many seconds ago, and its rules."""
        with self._lock:
            # The start counts, not the end: an event during the check may be newer than what it read.
            began_at = self._now() - seconds
            self._rules = rules
            gpus = {gpu.pci: gpu for gpu in inventory.gpus}
            self._end_what_is_well(gpus, began_at)
            self._damp(gpus, self._now())
            changed = self._judge()
        if changed:
            self.on_change()

    def gpu_was_reset(self, pci: PciAddress, age_seconds: float) -> None:
        """Note that a GPU was reset this long ago, so that faults reported before are over."""
        with self._lock:
            # The time is kept: faults that are read from the slices later may be older than the reset. The
            # plugin reports a reset when it connects, which may be before the slices are known.
            self._learn(Faults(over_at={pci: self._now() - age_seconds}), "the GPU was reset")
            changed = self._judge()
        if changed:
            self.on_change()

    def take_over(
        self, stored: Callable[[], Iterable[tuple[Incident, float]]], uptime_seconds: float
    ) -> None:
        """Note the stored faults, with their ages in seconds: once, before anything is written.

        The machine was started ``uptime_seconds`` ago; faults that are older are over.
        """
        with self._lock:
            # Only the slices of the previous controller count: later ones have the taints of this one.
            if self._taken_over:
                return
            self._taken_over = True
            now, before = self._now(), self._faults.reported_at
            for incident, age_seconds in stored():
                if age_seconds < uptime_seconds:
                    self._learn(Faults({incident: now - age_seconds}))
            for incident in self._faults.reported_at.keys() - before.keys():
                _log.info(
                    "fault of an earlier process is kept", gpu=str(incident.scope.pci), xid=incident.xid
                )
                self._damping.note_bad(incident, now)
            changed = self._judge()
        if changed:
            self.on_change()

    def _end_what_is_well(self, gpus: dict[PciAddress, Gpu], began_at: float) -> None:
        """Drop the faults of GPUs for which NVML recommends no action. The lock is held."""
        over: dict[PciAddress | Incident, float] = {}
        for incident, last_at in self._faults.reported_at.items():
            gpu = gpus.get(incident.scope.pci)
            # An older NVIDIA driver has no recovery action; then only a reset or a restart ends the fault.
            if gpu is None or gpu.condition.recovery_action != "none":
                continue
            quiet = began_at - last_at >= self._quiet_seconds
            if quiet and self._damping.note_well(incident, began_at):
                over[incident] = began_at
        self._learn(Faults(over_at=over), "NVML no longer recommends an action")

    def _learn(self, found: Faults, why: str = "") -> None:
        """Merge what is known now; ``why`` is the reason that faults are over. The lock is held."""
        before, self._faults = self._faults, self._faults.merged(found)
        for incident in before.reported_at.keys() - self._faults.reported_at.keys():
            self._damping.note_well(incident, self._now())
            _log.info("fault is over", gpu=str(incident.scope.pci), xid=incident.xid, reason=why)

    def _damp(self, gpus: dict[PciAddress, Gpu], now: float) -> None:
        """Keep problems that come back again and again until they were away long enough. The lock is held."""
        self._found = {
            pci: tuple(self._effective(one) for one in verdicts(pci, gpu.problems))
            for pci, gpu in gpus.items()
            if gpu.problems
        }
        # One verdict for each GPU and kind: sorted by effect, so that the strongest is last and stays.
        found: dict[tuple[PciAddress, Kind], Verdict] = {}
        for pci, of_gpu in self._found.items():
            for verdict in sorted(of_gpu, key=lambda one: EFFECTS.index(one.effect)):
                found[pci, verdict.kind] = verdict
        for what in found:
            self._damping.note_bad(what, now)
        known = {what: verdict for what, verdict in self._lingering.items() if what[0] in gpus}
        for what in known.keys() - found.keys():
            if self._damping.note_well(what, now):
                del known[what]
        self._lingering = known | found
        self._damping.forget_old(now)

    def _effective(self, verdict: Verdict) -> Verdict:
        return replace(verdict, effect=self._rules.effect(verdict.kind, verdict.effect))

    def _judge(self) -> bool:
        """Work out the verdicts again; returns whether they have changed. The lock is held."""
        # The text as second key: the order of the verdicts must not depend on the order of the events.
        worst_first = sorted(
            self._faults.reported_at,
            key=lambda one: (-XID_CLASSES.index(one.xid_class(self._rules)), str(one)),
        )
        reported = [verdict for one in worst_first for verdict in verdicts_of(one, self._rules)]
        judged = (*reported, *self._lingering.values())
        changed = judged != self._verdicts
        self._verdicts = judged
        return changed


class EndedByReset:
    """Ends the faults of GPUs that the kubelet plugin has reset.

    The plugin's state has each GPU that was reset since the machine was started. Faults that were reported
    after the reset stay.
    """

    def __init__(self, incidents: IncidentStore) -> None:
        self._incidents = incidents
        self._known: frozenset[Healed] = frozenset()

    def plugin_reports(self, state: NodeState) -> None:
        """Take in the plugin's state of the node."""
        now = frozenset(state.healed)
        for one in now - self._known:
            # The plugin runs on this machine, so its uptime is the same.
            age_seconds = machine_uptime_seconds() - one.boottime_milliseconds / 1000
            self._incidents.gpu_was_reset(one.pci, max(0.0, age_seconds))
        self._known = now


@dataclass(slots=True)
class _Known:
    returns: int = 0
    bad: bool = True
    changed_at: float = 0.0


class Damping:
    """Remembers how often each thing was bad again after it was well. Times are of one monotonic clock.

    After its first return a thing has to be well for the first of ``hold_seconds``, after many for the
    second.
    """

    def __init__(self, hold_seconds: tuple[float, float] = HOLD_SECONDS) -> None:
        self._hold_seconds = hold_seconds
        self._known: dict[Hashable, _Known] = {}

    def note_bad(self, what: Hashable, now_seconds: float) -> None:
        """Note that it is bad now."""
        known = self._known.get(what)
        if known is None or (not known.bad and now_seconds - known.changed_at > FORGET_SECONDS):
            self._known[what] = _Known(changed_at=now_seconds)
        elif not known.bad:
            known.returns += 1
            known.bad, known.changed_at = True, now_seconds

    def note_well(self, what: Hashable, now_seconds: float) -> bool:
        """Note that it is well now; returns whether it has been well long enough to count as well.

        The first time that is at once. After each return it has to be well twice as long as the time before.
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
    """How long something has to be well after it came back this often."""
    if returns == 0:
        return 0.0
    first, most = hold_seconds
    # The exponent is bounded, since a float overflows at 2 ** 1024.
    return float(min(first * 2 ** min(returns - 1, 30), most))


def stored_faults(
    slices: Iterable[Mapping[str, Any]], server_time: datetime
) -> tuple[tuple[Incident, float], ...]:
    """The faults in stored slices, each with its age in seconds."""
    # By the API server's clock, which set timeAdded of the taints; the clock of this node may differ.
    return incidents_in(one for item in slices for one in _tainted_devices(item["spec"], server_time))


def machine_uptime_seconds() -> float:
    """How long ago this machine was started."""
    # CLOCK_MONOTONIC does not count while the machine is suspended; this clock does.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _tainted_devices(spec: Mapping[str, Any], server_time: datetime) -> Iterator[TaintedDevice]:
    ages = {
        device["name"]: {taint["key"]: _age(taint, server_time) for taint in device.get("taints") or []}
        for device in spec.get("devices") or []
    }
    devices, _ = read_devices([spec])
    return (TaintedDevice(device.regions, device.taints, ages[device.name]) for device in devices)


def _age(taint: Mapping[str, Any], server_time: datetime) -> float:
    try:
        added = datetime.fromisoformat(str(taint["timeAdded"]))
        return max(0.0, (server_time - added).total_seconds())
    except (KeyError, ValueError, TypeError):
        # A taint without a readable time counts as new, so that it is not dropped for its age.
        return 0.0
