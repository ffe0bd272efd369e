"""Keeps the status of claims up to date, from a thread of its own: what their devices are, and how they are.

What to write follows from the journal, so nothing is queued and nothing is lost while the API is away.
Prepare neither waits for this nor fails because of it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from driver.errors import ApiError, DriverError
from driver.kube.backoff import Backoff
from driver.kube.errors import Invalid, NotFound
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.devices.kinds.kind import HeldKinds
from kubeletplugin.reports.device_status import ClaimStatus, Now, claim_statuses
from kubeletplugin.reports.status.writer import StatusWriter

_SETTLE_SECONDS = 0.2
"""So long nothing changes before the writing begins: the kubelet's calls that are under way go first."""

_MOST_SETTLES = 10
"""How many times as long the writing waits at most, where calls come without an end."""

_FIRST_LOOK_SECONDS = 5.0
"""How long the first writing waits for the first look at the devices."""

_LONGEST_PAUSE_SECONDS = 60.0
_MOST_REFUSALS = 5
"""So often a claim is tried of which the API server says that it breaks a rule, until it has other devices.

It says so of one that lost its allocation meanwhile, which the next look sees.
"""

_log = get_logger("claim status")


class ClaimStatuses:
    """Keeps ``status.devices`` of the claims of one node up to date.

    When a claim loses its allocation, the API server removes what drivers said of its devices.
    """

    def __init__(
        self,
        writer: StatusWriter,
        journal: Journal,
        era: Callable[[], Era],
        kinds: HeldKinds,
        now: Callable[[], Now],
        settle_seconds: float = _SETTLE_SECONDS,
    ) -> None:
        """``now()`` is what there is to tell besides the journal; ``changed`` says that it is other."""
        self._writer = writer
        self._journal = journal
        self._era = era
        self._kinds = kinds
        self._now = now
        self._settle_seconds = settle_seconds
        self._changed = threading.Condition()
        self._due = True
        self._changed_at = 0.0
        self._stopped = False
        self._settled: dict[str, ClaimStatus] = {}
        self._failures: Counter[str] = Counter()

    def prepared(self, _entry: Entry) -> None:
        """Called when a claim was prepared."""
        self.changed()

    def changed(self) -> None:
        """Called when the status of claims may have to change; costs next to nothing."""
        with self._changed:
            self._changed_at = time.monotonic()
            if not self._due:  # else it is awake, or about to be
                self._due = True
                self._changed.notify_all()

    def run(self) -> None:
        """Write what is missing, at first of all claims, then at each change, until ``stop``."""
        self._wait_for_first_look()
        backoff = Backoff(most_seconds=_LONGEST_PAUSE_SECONDS)
        pause_seconds = 0.0
        failure: DriverError | None = None
        while self._wait(pause_seconds, wakes=failure is None or isinstance(failure, Invalid)):
            failure = self._write_missing()
            if failure is None:
                backoff.reset()
                pause_seconds = 0.0
                continue
            pause_seconds = backoff.next_seconds(failure)
            _log.warning(
                "claim status not written yet", error=str(failure), again_in_seconds=round(pause_seconds, 2)
            )

    def stop(self) -> None:
        """Make ``run`` return."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _wait_for_first_look(self) -> None:
        """Wait for the first health of the devices, so that a restart does not write each claim twice."""
        until = time.monotonic() + _FIRST_LOOK_SECONDS
        with self._changed:
            while not self._stopped and self._now().healths is None:
                self._due = False  # so that the next change is heard of
                if not self._changed.wait(max(0.0, until - time.monotonic())):
                    break
            self._due = True

    def _wait(self, pause_seconds: float, *, wakes: bool) -> bool:
        """Wait for the next change, or after a failure for the pause; False when it is over.

        ``wakes``: a change ends the pause as well, since only single claims were refused.
        """
        with self._changed:
            if wakes:
                self._changed.wait_for(lambda: self._due or self._stopped, pause_seconds or None)
                self._settle()
            else:
                self._changed.wait_for(lambda: self._stopped, pause_seconds)
            self._due = False
            return not self._stopped

    def _settle(self) -> None:
        """Wait until nothing has changed for a while: the kubelet's calls go first."""
        began = now = time.monotonic()
        while not self._stopped:
            calm_at = max(began, self._changed_at) + self._settle_seconds
            until = min(calm_at, began + _MOST_SETTLES * self._settle_seconds)
            if now >= until:
                return
            self._changed.wait_for(lambda: self._stopped, until - now)
            now = time.monotonic()

    def _write_missing(self) -> DriverError | None:
        """Write the status of each claim that lacks it, up to the first failure, which is returned.

        Such a failure is not final, since rights may be granted. An error in one claim does not stop the
        others: its tenant may have caused it on purpose.
        """
        try:
            told = claim_statuses(self._journal.held(), self._era(), self._kinds, self._now())
            wanted = {claim.uid: claim for claim in told}
        except DriverError as error:
            return error
        for uid in self._settled.keys() - wanted.keys():
            self._writer.forget(uid)
        self._settled = {uid: claim for uid, claim in self._settled.items() if wanted.get(uid) == claim}
        self._failures = Counter({uid: self._failures[uid] for uid in wanted.keys() & self._failures.keys()})
        refused: DriverError | None = None
        missing = [claim for uid, claim in wanted.items() if uid not in self._settled]
        # One try that fails ends the round, whatever the reason: a cluster whose nodes all lack a right, or
        # whose API server is away, is not asked for every claim. The next round begins with other claims.
        for claim in sorted(missing, key=lambda claim: self._failures[claim.uid]):
            if self._stopped:
                return None
            try:
                is_told = self._writer.write(claim)
            except NotFound:
                is_told = True
                _log.debug("claim is gone, its status is not written", uid=claim.uid)
            except Invalid as error:
                self._failures[claim.uid] += 1
                if self._failures[claim.uid] < _MOST_REFUSALS:
                    refused = error
                    continue
                is_told = True
                _log.warning("claim status cannot be written", uid=claim.uid, error=str(error))
            except ApiError as error:
                self._failures[claim.uid] += 1
                return error
            if is_told:
                self._settled[claim.uid] = claim
        return refused
