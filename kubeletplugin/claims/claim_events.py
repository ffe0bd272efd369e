"""Posts events on claims: a prepare that fails or waits, an unprepare that fails, and the like."""

from __future__ import annotations

from driver.errors import DriverError
from driver.event_reasons import EventReason
from driver.kube.events import EventRecorder, Reference
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.claims.preparer import Preparer
from kubeletplugin.kubelet.wire.claim_call import Call, ClaimRef, PreparedDevice

_log = get_logger("kubeletplugin")


class ClaimsWithEvents:
    """Prepares and unprepares for the kubelet, and posts an event on the claim if that fails."""

    def __init__(self, preparer: Preparer, events: EventRecorder) -> None:
        self._preparer = preparer
        self._events = events

    def prepare(self, claim: ClaimRef, call: Call) -> tuple[PreparedDevice, ...]:
        """Prepare; a failure becomes a warning on the claim as well."""
        try:
            return self._preparer.prepare(claim, call)
        except DriverError as error:
            _tell(self._events, EventReason.PREPARE_FAILED, claim, str(error))
            raise

    def unprepare(self, claim: ClaimRef, call: Call) -> None:
        """Unprepare; a failure becomes a warning on the claim as well, and so does what stays behind."""
        try:
            left = self._preparer.unprepare(claim, call)
        except DriverError as error:
            _tell(self._events, EventReason.UNPREPARE_FAILED, claim, str(error))
            raise
        if left is not None:
            _log.warning("not all of a claim is taken back yet", claim=str(claim), error=left.logged)
            _tell(self._events, EventReason.UNPREPARE_INCOMPLETE, claim, str(left))


def _tell(events: EventRecorder, reason: EventReason, claim: ClaimRef, text: str) -> None:
    """Post an event on the claim."""
    about = Reference("resource.k8s.io/v1", "ResourceClaim", claim.name, claim.uid, claim.namespace)
    events.post(about, reason, text)


def tell_waiting(events: EventRecorder, claim: ClaimRef, error: DriverError) -> None:
    """Say that a prepare waits for something that passes."""
    _log.warning("prepare waits", error=error.logged)
    _tell(events, EventReason.PREPARE_WAITS, claim, str(error))


def tell_missing(events: EventRecorder, claim: ClaimRef, text: str) -> None:
    """Say what the hardware does not do for a claim that is prepared all the same."""
    _log.warning("prepared without what the GPU cannot do", claim=str(claim), missing=text)
    _tell(events, EventReason.SHARING_INCOMPLETE, claim, text)


def tell_of_entry(events: EventRecorder, reason: EventReason, entry: Entry, text: str) -> None:
    """Post an event on the claim of an entry whose name is known."""
    _tell(events, reason, ClaimRef(entry.namespace, entry.name, entry.uid), text)
