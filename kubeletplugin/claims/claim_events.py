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
        """Prepare. If that fails, a warning on the claim says so."""
        try:
            return self._preparer.prepare(claim, call)
        except DriverError as error:
            _post(self._events, EventReason.PREPARE_FAILED, claim, str(error))
            raise

    def unprepare(self, claim: ClaimRef, call: Call) -> None:
        """Unprepare. A warning on the claim says if that fails, or if something cannot be taken back yet."""
        try:
            left = self._preparer.unprepare(claim, call)
        except DriverError as error:
            _post(self._events, EventReason.UNPREPARE_FAILED, claim, str(error))
            raise
        if left is not None:
            _log.warning("cannot release all of a claim yet", claim=str(claim), error=left.logged)
            _post(self._events, EventReason.UNPREPARE_INCOMPLETE, claim, str(left))


def _post(events: EventRecorder, reason: EventReason, claim: ClaimRef, text: str) -> None:
    """Post an event on the claim."""
    about = Reference("resource.k8s.io/v1", "ResourceClaim", claim.name, claim.uid, claim.namespace)
    events.post(about, reason, text)


def post_waiting(events: EventRecorder, claim: ClaimRef, error: DriverError) -> None:
    """Log, and post on the claim, that a prepare waits for an error that may pass."""
    _log.warning("prepare is waiting", error=error.logged)
    _post(events, EventReason.PREPARE_WAITS, claim, str(error))


def post_missing(events: EventRecorder, claim: ClaimRef, text: str) -> None:
    """Log, and post on the claim, what the GPU cannot do for a claim that is prepared all the same."""
    _log.warning(
        "claim prepared without a sharing setting that the GPU does not support",
        claim=str(claim),
        missing=text,
    )
    _post(events, EventReason.SHARING_INCOMPLETE, claim, text)


def post_on_entry(events: EventRecorder, reason: EventReason, entry: Entry, text: str) -> None:
    """Post an event on the claim of an entry that has the claim's name."""
    _post(events, reason, ClaimRef(entry.namespace, entry.name, entry.uid), text)
