"""Tells whether a claim was allocated other devices than the journal has of it.

A claim that no pod uses any more loses its allocation, and may get another one under the same UID. The
kubelet unprepares it before. One that has lost its records does not, and asks for the claim as for a new one.
"""

from __future__ import annotations

from driver.claims.allocation import Claim, read_claim
from driver.errors import ApiError
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.claims.ports import Ports
from kubeletplugin.kubelet.wire.claim_call import Call, ClaimRef

_log = get_logger("preparer")


class Allocations:
    """The allocations of claims, as far as they are to be asked for.

    A call that repeats another one is answered from the journal. Only a kubelet that registered the plugin
    after the claim was prepared may have forgotten it: the API server is asked once for each such claim.
    """

    def __init__(self, ports: Ports, driver: str) -> None:
        self._ports = ports
        self._driver = driver
        self._seen: dict[str, int] = {}

    def of(self, ref: ClaimRef) -> Claim:
        """The claim as the API server has it; raises ApiError, ClaimRefused, ClaimBlocked."""
        with self._ports.timing.during("claim"):
            return read_claim(self._ports.get_claim(ref.namespace, ref.name), ref.uid, self._driver)

    def changed(self, ref: ClaimRef, prepared: Entry, call: Call) -> Claim | None:
        """The claim where it has other devices than it was prepared with; None for all that is known.

        Raises as ``of``, but where the API server does not answer: then what was prepared stands.
        """
        since = call.registered_ns
        if not prepared.changed_ns < since or self._seen.get(ref.uid) == since:
            return None
        try:
            claim = self.of(ref)
        except ApiError as error:
            _log.warning("what the claim was allocated is not known", uid=ref.uid, error=error.logged)
            return None
        if not has_allocated(prepared, claim):
            return claim
        # Those of an earlier kubelet are asked about anew, so no more stay than claims were held then.
        self._seen = {uid: at for uid, at in self._seen.items() if at == since} | {ref.uid: since}
        return None


def has_allocated(entry: Entry, claim: Claim) -> bool:
    """Whether the entry has the devices of the claim's allocation, and no others."""
    return _held(entry) == _allocated(claim)


def has_former(entry: Entry, claim: Claim) -> bool:
    """Whether the entry has a device that is not in the claim's allocation."""
    return not _held(entry) <= _allocated(claim)


_Key = tuple[str, str, str | None]


def _held(entry: Entry) -> set[_Key]:
    return {(one.pool, one.allocated_name, one.share_id) for one in entry.devices}


def _allocated(claim: Claim) -> set[_Key]:
    return {(one.pool, one.device, one.share_id) for one in claim.devices}
