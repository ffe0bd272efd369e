"""Keeps the faults of the node's GPUs that NVML reports only once, and the problems that come and go.

A reset, which the kubelet plugin reports, ends the faults of its GPU. What comes back again and again has to
stay away for longer and longer before it counts as over.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from controller.health.incident_file import read_incidents, write_incidents
from driver.devices.node_state import NodeState
from driver.errors import StorageError
from driver.hardware.gpu import Gpu, Inventory
from driver.health.health_rules import HealthRules
from driver.health.judge import Incident, verdicts_of, verdicts_of_problems
from driver.health.verdict import Kind, Verdict
from driver.health.xids import XID_CLASSES
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger

_log = get_logger(__name__)

FORGET_SECONDS = 3600.0
"""After this time without a return, a fault counts as a first one again."""

HOLD_SECONDS = (30.0, 600.0)


def seconds_since_boot() -> float:
    """The clock of all times here: nobody sets it, and every process of the machine reads the same."""
    # Unlike CLOCK_MONOTONIC, it counts while the machine is suspended; the plugin dates resets by it.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


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
        now: Callable[[], float] = seconds_since_boot,
    ) -> None:
        self.on_change = on_change
        self._quiet_seconds = quiet_seconds
        self._now = now
        self._lock = threading.Lock()
        self._rules = HealthRules()
        # The time of the last report of each incident, and of the last reset of each GPU.
        self._reported_at: dict[Incident, float] = {}
        self._reset_at: dict[PciAddress, float] = {}
        # Where the incidents are kept for the next process, and those that are in the file.
        self._folder: Path | None = None
        self._written: Mapping[Incident, float] = {}
        self._failure = ""
        self._damping = Damping(hold_seconds)
        # What the last check found, and what earlier ones found and damping still keeps.
        self._lingering: dict[tuple[PciAddress, Kind], list[Verdict]] = {}
        self._verdicts: tuple[Verdict, ...] = ()

    @property
    def rules(self) -> HealthRules:
        """The rules of the last check."""
        return self._rules

    def verdicts(self) -> tuple[Verdict, ...]:
        """Everything that is wrong: what was reported, the worst first, and what checks found."""
        return self._verdicts

    def keep_in(self, folder: Path) -> None:
        """Take over what an earlier process kept in ``folder``, and keep the incidents there from now on.

        Only one process of the node may do so at a time.
        """
        with self._lock:
            self._folder = folder
            try:
                self._written = read_incidents(folder)
            except StorageError as error:
                _log.error("faults of an earlier process are lost", error=str(error))
            known = dict(self._reported_at)
            for incident, at in self._written.items():
                if incident not in known:
                    _log.info("fault of an earlier process is kept", gpu=incident.scope.pci, xid=incident.xid)
                    self._damping.note_bad(incident, self._now())
                known[incident] = max(at, known.get(incident, at))
            changed = self._know(known)
        if changed:
            self.on_change()

    def leave(self) -> None:
        """Write no more, since another process may do so from now on."""
        with self._lock:
            self._folder = None

    def report(self, incident: Incident) -> bool:
        """Note a fault that happens now; returns whether it is a new one that taints devices."""
        with self._lock:
            now, is_known = self._now(), incident in self._reported_at
            # An XID that the rules take for harmless is not kept.
            if not is_known and not verdicts_of(incident, self._rules):
                return False
            self._damping.note_bad(incident, now)
            self._know({**self._reported_at, incident: now})
        if is_known:
            return False
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
            self._damp(gpus, self._now())
            changed = self._know(
                {
                    incident: last_at
                    for incident, last_at in self._reported_at.items()
                    if not self._is_over(incident, last_at, gpus, began_at)
                },
                "NVML no longer recommends an action",
            )
        if changed:
            self.on_change()

    def plugin_reports(self, state: NodeState) -> None:
        """Take in the plugin's state, which has each GPU that was reset since the machine was started."""
        with self._lock:
            # The times are kept: what an earlier process kept becomes known later, and may be older.
            for healed in state.healed:
                at = healed.boottime_milliseconds / 1000
                self._reset_at[healed.pci] = max(at, self._reset_at.get(healed.pci, at))
            changed = self._know(self._reported_at, "the GPU was reset")
        if changed:
            self.on_change()

    def _is_over(
        self, incident: Incident, last_at: float, gpus: Mapping[PciAddress, Gpu], began_at: float
    ) -> bool:
        """Whether NVML has recommended no action for the GPU for long enough. The lock is held."""
        gpu = gpus.get(incident.scope.pci)
        # An older NVIDIA driver has no recovery action; then only a reset or a restart ends the fault.
        if gpu is None or gpu.condition.recovery_action != "none":
            return False
        return began_at - last_at >= self._quiet_seconds and self._damping.note_well(incident, began_at)

    def _know(self, reported_at: Mapping[Incident, float], why: str = "") -> bool:
        """Go on with these incidents, without those of before a reset; returns whether the verdicts changed.

        ``why`` is the reason that others are over. The lock is held.
        """
        before, self._reported_at = (
            self._reported_at,
            {
                incident: at
                for incident, at in reported_at.items()
                if at >= self._reset_at.get(incident.scope.pci, -math.inf)
            },
        )
        for incident in before.keys() - self._reported_at.keys():
            self._damping.note_well(incident, self._now())
            _log.info("fault is over", gpu=str(incident.scope.pci), xid=incident.xid, reason=why)
        # Before they are published: a process that ends in between must not lose them.
        if self._folder is not None and self._written != self._reported_at:
            try:
                write_incidents(self._folder, self._reported_at)
                self._written, self._failure = self._reported_at, ""
            except StorageError as error:
                # Published all the same, to keep pods away. Each check tries again.
                if str(error) != self._failure:
                    _log.error("faults of GPUs would be forgotten by a restart", error=str(error))
                self._failure = str(error)
        return self._judge()

    def _damp(self, gpus: dict[PciAddress, Gpu], now: float) -> None:
        """Keep problems that come back again and again until they were away long enough. The lock is held."""
        found: dict[tuple[PciAddress, Kind], list[Verdict]] = {}
        for pci, gpu in gpus.items():
            for verdict in verdicts_of_problems(pci, gpu.problems, self._rules):
                found.setdefault((pci, verdict.kind), []).append(verdict)
        for what in found:
            self._damping.note_bad(what, now)
        known = {what: of_kind for what, of_kind in self._lingering.items() if what[0] in gpus}
        for what in known.keys() - found.keys():
            if self._damping.note_well(what, now):
                del known[what]
        self._lingering = known | found
        self._damping.forget_old(now)

    def _judge(self) -> bool:
        """Work out the verdicts again; returns whether they have changed. The lock is held."""
        # The text as second key: the order of the verdicts must not depend on the order of the events.
        worst_first = sorted(
            self._reported_at,
            key=lambda one: (-XID_CLASSES.index(one.xid_class(self._rules)), str(one)),
        )
        reported = [verdict for one in worst_first for verdict in verdicts_of(one, self._rules)]
        judged = (*reported, *chain.from_iterable(self._lingering.values()))
        changed = judged != self._verdicts
        self._verdicts = judged
        return changed


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
