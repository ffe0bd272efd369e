"""Keeps the status of claims up to date, from a thread of its own: their devices, and whether these work.

What to write follows from the journal, so nothing is queued, and nothing is lost while the API server is
away. Prepare neither waits for this nor fails because of it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from driver.devices.names import DRIVER_NAME
from driver.errors import ApiError, DriverError
from driver.event_reasons import EventReason
from driver.kube.backoff import Backoff
from driver.kube.client import KubeClient
from driver.kube.errors import Invalid, NotFound
from driver.kube.events import Reference
from driver.kube.paths import claim_path
from driver.process.log import get_logger
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.reports.device_status import (
    NOT_HELD,
    ClaimStatus,
    Observed,
    claim_statuses,
    key_of,
    ready_of,
    statuses_to_apply,
)

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
            current = claim_statuses(self._journal.held(), self._observed())
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


FIELD_MANAGER = "gpu-dra-kubeletplugin"

_REQUEST_SECONDS = 5.0
_MOST_FRESH = 1024
_MOST_PODS = 4
"""If more pods than this have a claim, events are posted for the claim alone."""

Post = Callable[[Reference, EventReason, str], None]

Object = dict[str, Any]


class StatusWriter:
    """Writes with server-side apply, which changes our own fields only.

    For an apply, the API server encodes the configurations in the allocation again: compact, with sorted
    keys. If one was written in another way, it sees a changed allocation and refuses: such a claim has no
    status.
    """

    def __init__(self, client: KubeClient, post: Post) -> None:
        self._client = client
        self._post = post
        self._lock = threading.Lock()
        # The UIDs of claims that were read and had no status of ours.
        self._fresh: set[str] = set()

    def saw(self, stored: Mapping[str, Any]) -> None:
        """Called with each claim that was read to prepare it.

        If it has no status of ours, it need not be read again before writing.
        """
        uid = (stored.get("metadata") or {}).get("uid", "")
        devices = (stored.get("status") or {}).get("devices") or ()
        with self._lock:
            if any(entry.get("driver") == DRIVER_NAME for entry in devices):
                self._fresh.discard(uid)
                return
            if len(self._fresh) >= _MOST_FRESH:
                # Most of so many could never be prepared. The others are only read again.
                self._fresh.clear()
            self._fresh.add(uid)

    def forget(self, uid: str) -> None:
        """Forget what is known about a claim."""
        with self._lock:
            self._fresh.discard(uid)

    def write(self, claim: ClaimStatus) -> bool:
        """Write the status; returns whether it is complete now.

        It is not complete if it still has an old health of a device that was not checked yet. Raises
        ApiError, which is Invalid if the API server refuses this status for good.
        """
        if self._write_fresh(claim):
            return True
        stored = self._client.get(self._path(claim), timeout_seconds=_REQUEST_SECONDS)
        if stored.get("metadata", {}).get("uid") != claim.uid:
            return True  # another claim of the same name
        entries = statuses_to_apply(claim, stored, self._now())
        if not entries:
            return _is_complete(claim, (stored.get("status") or {}).get("devices") or ())
        self._apply(claim, entries)
        self._post_changes(claim, stored["status"], entries)
        return _is_complete(claim, entries)

    def _write_fresh(self, claim: ClaimStatus) -> bool:
        """Write to a claim without our status, without reading it first; returns whether that succeeded."""
        with self._lock:
            is_fresh = claim.uid in self._fresh
            self._fresh.discard(claim.uid)
        # A device that is not ready needs an event, for which the pods of the claim have to be read.
        if not is_fresh or any(device.ready.status != "True" for device in claim.devices):
            return False
        try:
            self._apply(claim, [device.status({}, self._now()) for device in claim.devices])
        except Invalid:
            return False  # it may have lost its allocation, which reading it will show
        return True

    def _apply(self, claim: ClaimStatus, entries: list[Object]) -> None:
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            # The UID makes the API server refuse the write if another claim has the name by now.
            "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            "status": {"devices": entries},
        }
        self._client.patch(
            f"{self._path(claim)}/status",
            body,
            # JSON is YAML. The API server accepts an apply with this content type only.
            "application/apply-patch+yaml",
            # Without force, the server refuses fields that another manager has set.
            {"fieldManager": FIELD_MANAGER, "force": "true"},
            timeout_seconds=_REQUEST_SECONDS,
        )

    def _post_changes(self, claim: ClaimStatus, status: Mapping[str, Any], entries: list[Object]) -> None:
        change = health_change(status.get("devices") or (), entries)
        if not (change.sick or change.well):
            return
        about = Reference("resource.k8s.io/v1", "ResourceClaim", claim.name, claim.uid, claim.namespace)
        pods = [
            Reference("v1", "Pod", str(user["name"]), str(user["uid"]), claim.namespace)
            for user in status.get("reservedFor") or ()
            # reservedFor may name other objects, which have an API group.
            if user.get("resource") == "pods" and not user.get("apiGroup")
        ]
        for one in (about, *(pods if len(pods) <= _MOST_PODS else ())):
            if change.sick:
                self._post(one, EventReason.GPU_SICK, "; ".join(change.sick))
            if change.well:
                self._post(one, EventReason.GPU_WELL, "; ".join(change.well))

    def _now(self) -> str:
        return self._client.server_time().strftime("%Y-%m-%dT%H:%M:%SZ")

    @staticmethod
    def _path(claim: ClaimStatus) -> str:
        return claim_path(claim.namespace, claim.name)


def _is_complete(claim: ClaimStatus, entries: Any) -> bool:
    """Whether the entries need no further write once the devices that were not checked yet are checked."""
    conditions = {key_of(one): ready_of(one) for one in entries}
    return all(
        (found := conditions.get(device.key)) is None or found.get("status") == device.ready.status
        for device in claim.devices
        if not device.is_checked
    )


@dataclass(frozen=True, slots=True)
class HealthChange:
    """Sentences about devices that became faulty, or faulty in another way, and about recovered ones."""

    sick: tuple[str, ...] = ()
    well: tuple[str, ...] = ()


def health_change(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> HealthChange:
    """The difference between the stored entries of ``status.devices`` and those that are written.

    Memory limits that are not enforced do not count: they are not about the GPU's health, and have events of
    their own.
    """
    there = {key_of(entry): ready_of(entry) for entry in before}
    sick, well = [], []
    for entry in after:
        now, was = ready_of(entry), there.get(key_of(entry))
        if now is None:
            continue
        if _is_ill(now):
            # A new reason is news, a new message alone is not.
            if was is None or not _is_ill(was) or was.get("reason") != now["reason"]:
                sick.append(f"{entry['device']}: {now['message'] or now['reason']}")
        elif was is not None and _is_ill(was):
            well.append(f"{entry['device']} is healthy again")
    return HealthChange(tuple(sick), tuple(well))


def _is_ill(ready: Mapping[str, Any]) -> bool:
    return ready.get("status") != "True" and ready.get("reason") != NOT_HELD
