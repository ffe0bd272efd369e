"""Writes into the status of claims what they have: partitions, shares, memory; from its own thread.

What is to be written comes from the journal, so nothing is queued and nothing is lost while the API is
away. Prepare neither waits for this nor fails because of it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from driver.errors import ApiError, DriverError
from driver.kube.backoff import Backoff
from driver.kube.client import KubeClient
from driver.kube.errors import Invalid, NotFound
from driver.kube.paths import claim_path
from driver.process.log import get_logger
from kubeletplugin.journal.entry import Entry
from kubeletplugin.journal.identity import Era
from kubeletplugin.journal.journal import Journal
from kubeletplugin.kinds.kind import HeldKinds
from kubeletplugin.reports.device_status import MemoryTold, ToldClaim, statuses_to_apply, told_claims

FIELD_MANAGER = "gpu-dra-kubeletplugin"

_SETTLE_SECONDS = 0.2
"""How long after a change the writing begins: the kubelet's calls that are under way go first."""

_REQUEST_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 60.0
_MOST_REFUSALS = 5
"""So often a claim is tried of which the API server says that it breaks a rule, until it has other devices.

It says so of one that lost its allocation meanwhile, which the next look sees, and of each apply to a claim
whose opaque configuration is no compact JSON, since an apply rewrites that and allocations are immutable.
"""

_log = get_logger("claim status")


class ClaimStatuses:
    """Keeps ``status.devices`` of the claims of one node true.

    A claim of whole GPUs costs no request. Entries and conditions of
    others stay as they are, since only our own fields are applied (server-side apply). When a claim loses
    its allocation, the API server removes what drivers said of its devices.
    """

    def __init__(
        self,
        client: KubeClient,
        journal: Journal,
        era: Callable[[], Era],
        kinds: HeldKinds,
        settle_seconds: float = _SETTLE_SECONDS,
        memory: Callable[[], MemoryTold] = dict,
    ) -> None:
        """``memory()`` is what there is to tell of GPU memory; ``changed`` says that it is other."""
        self._client = client
        self._journal = journal
        self._era = era
        self._kinds = kinds
        self._settle_seconds = settle_seconds
        self._memory = memory
        self._changed = threading.Condition()
        self._due = True
        self._stopped = False
        self._settled: dict[str, ToldClaim] = {}
        self._failures: Counter[str] = Counter()

    def prepared(self, entry: Entry) -> None:
        """Tell it that a claim was prepared; a claim of whole GPUs has nothing to tell."""
        if not any(told_claims((entry,), entry.era, self._kinds)):
            return
        self.changed()

    def changed(self) -> None:
        """Tell it that the status of claims may have something new to tell."""
        with self._changed:
            self._due = True
            self._changed.notify_all()

    def run(self) -> None:
        """Write what is missing, at first of all claims, then at each change, until ``stop``."""
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

    def _wait(self, pause_seconds: float, *, wakes: bool) -> bool:
        """Wait for the next change, or after a failure for the pause; False when it is over.

        ``wakes``: a change ends the pause as well, since only single claims were refused.
        """
        with self._changed:
            if wakes:
                self._changed.wait_for(lambda: self._due or self._stopped, pause_seconds or None)
            self._changed.wait_for(lambda: self._stopped, self._settle_seconds if wakes else pause_seconds)
            self._due = False
            return not self._stopped

    def _write_missing(self) -> DriverError | None:
        """Write the status of each claim that lacks it, up to the first failure, which is returned.

        Rights may be granted, so such a failure is not for good. What is wrong with one claim keeps none from
        being written after it: its tenant may have meant that.
        """
        try:
            told = told_claims(self._journal.entries(), self._era(), self._kinds, self._memory())
            wanted = {claim.uid: claim for claim in told}
        except DriverError as error:
            return error
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
                self._write(claim)
            except NotFound:
                _log.debug("claim is gone, its status is not written", uid=claim.uid)
            except Invalid as error:
                self._failures[claim.uid] += 1
                if self._failures[claim.uid] < _MOST_REFUSALS:
                    refused = error
                    continue
                _log.warning("claim status cannot be written", uid=claim.uid, error=str(error))
            except ApiError as error:
                self._failures[claim.uid] += 1
                return error
            self._settled[claim.uid] = claim
        return refused

    def _write(self, claim: ToldClaim) -> None:
        path = claim_path(claim.namespace, claim.name)
        stored = self._client.get(path, timeout_seconds=_REQUEST_SECONDS)
        if stored.get("metadata", {}).get("uid") != claim.uid:
            return  # another one of the same name
        entries = statuses_to_apply(claim, stored, self._client.server_time().strftime("%Y-%m-%dT%H:%M:%SZ"))
        if not entries:
            return
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            # The UID makes the API server refuse the write when the claim is replaced meanwhile.
            "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            "status": {"devices": entries},
        }
        self._client.patch(
            f"{path}/status",
            body,
            "application/apply-patch+yaml",
            {"fieldManager": FIELD_MANAGER, "force": "true"},
            timeout_seconds=_REQUEST_SECONDS,
        )
