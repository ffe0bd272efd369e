"""Keeps the status of claims up to date, from a thread of its own: their devices, and whether these work.

What to write follows from the journal, so nothing is queued, and nothing is lost while the API server is
away. Prepare neither waits for this nor fails because of it.
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
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.reports.device_status import ClaimStatus, Observed, claim_statuses
from kubeletplugin.reports.status_writer import StatusWriter

_SETTLE_SECONDS = 0.2
"""Writing starts after this time without a change, so that running calls of the kubelet go first."""

_MOST_SETTLES = 10
"""While calls come without a pause, writing waits at most this many times as long."""

_FIRST_HEALTH_SECONDS = 5.0
"""How long the first writing waits for the first health of the devices."""

_LONGEST_PAUSE_SECONDS = 60.0
_MOST_REFUSALS = 5
"""How often to try a claim whose status the API server refuses as invalid, until its devices change.

It also refuses one that has lost its allocation meanwhile, which the next round notices.
"""

_log = get_logger("claim status")


class ClaimStatuses:
    """Keeps ``status.devices`` of the claims of one node up to date.

    Entries need not be removed: the API server does that when a claim loses its allocation.
    """

    def __init__(
        self,
        writer: StatusWriter,
        journal: Journal,
        observed: Callable[[], Observed],
        settle_seconds: float = _SETTLE_SECONDS,
    ) -> None:
        """``observed()`` is what is known besides the journal; call ``changed`` when it has changed."""
        self._writer = writer
        self._journal = journal
        self._observed = observed
        self._settle_seconds = settle_seconds
        self._changed = threading.Condition()
        self._due = True
        self._changed_at = 0.0
        self._stopped = False
        # The claims whose status needs no write, with that status.
        self._settled: dict[str, ClaimStatus] = {}
        # How often writing failed, by claim. Claims with fewer failures go first.
        self._failures: Counter[str] = Counter()

    def changed(self) -> None:
        """Called when the status of claims may have to change; it returns at once."""
        with self._changed:
            self._changed_at = time.monotonic()
            if not self._due:  # otherwise the thread is awake or about to be
                self._due = True
                self._changed.notify_all()

    def run(self) -> None:
        """Write what is missing, first for all claims, then at each change, until ``stop``."""
        self._wait_for_first_health()
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
                "cannot write the status of a claim yet",
                error=str(failure),
                again_in_seconds=round(pause_seconds, 2),
            )

    def stop(self) -> None:
        """Make ``run`` return."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _wait_for_first_health(self) -> None:
        """Wait for the first health of the devices, so that a restart does not write each claim twice."""
        until = time.monotonic() + _FIRST_HEALTH_SECONDS
        with self._changed:
            while not self._stopped and self._observed().healths is None:
                self._due = False  # so that the next change wakes this thread
                if not self._changed.wait(max(0.0, until - time.monotonic())):
                    break
            self._due = True

    def _wait(self, pause_seconds: float, *, wakes: bool) -> bool:
        """Wait for the next change, or after a failure for the pause; False after ``stop``.

        ``wakes`` is whether a change ends the pause as well, as when only single claims were refused.
        """
        with self._changed:
            # A change does not wake a thread that waits for an API server that is away.
            if wakes:
                self._changed.wait_for(lambda: self._due or self._stopped, pause_seconds or None)
                self._settle()
            else:
                self._changed.wait_for(lambda: self._stopped, pause_seconds)
            self._due = False
            return not self._stopped

    def _settle(self) -> None:
        """Wait until nothing has changed for a while."""
        began = now = time.monotonic()
        while not self._stopped:
            # Each change moves this moment, up to the limit in the next line.
            calm_at = max(began, self._changed_at) + self._settle_seconds
            until = min(calm_at, began + _MOST_SETTLES * self._settle_seconds)
            if now >= until:
                return
            self._changed.wait_for(lambda: self._stopped, until - now)
            now = time.monotonic()

    def _write_missing(self) -> DriverError | None:
        """Write the status of each claim that lacks it, up to the first failure, which is returned.

        An invalid status of one claim does not stop the others: its tenant may have caused it on purpose.
        """
        try:
            current = claim_statuses(self._journal.held(), self._journal.generation(), self._observed())
            wanted = {claim.uid: claim for claim in current}
        except DriverError as error:
            return error
        # Claims that have ended.
        for uid in self._settled.keys() - wanted.keys():
            self._writer.forget(uid)
        self._settled = {uid: claim for uid, claim in self._settled.items() if wanted.get(uid) == claim}
        self._failures = Counter({uid: self._failures[uid] for uid in wanted.keys() & self._failures.keys()})
        refused: DriverError | None = None
        missing = [claim for uid, claim in wanted.items() if uid not in self._settled]
        # Any other failure ends the round. If the nodes of a cluster lack a right, or the API server is
        # away, they do not ask for every claim. The next round starts with other claims.
        for claim in sorted(missing, key=lambda claim: self._failures[claim.uid]):
            if self._stopped:
                return None
            try:
                is_done = self._writer.write(claim)
            # Deleted since the journal was read.
            except NotFound:
                is_done = True
                _log.debug("claim is gone, so its status is not written", uid=claim.uid)
            except Invalid as error:
                self._failures[claim.uid] += 1
                if self._failures[claim.uid] < _MOST_REFUSALS:
                    refused = error
                    continue
                is_done = True
                _log.warning("cannot write the status of a claim", uid=claim.uid, error=str(error))
            except ApiError as error:
                self._failures[claim.uid] += 1
                return error
            if is_done:
                self._settled[claim.uid] = claim
        return refused
