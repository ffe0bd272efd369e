"""Deletes pods whose devices have a NoExecute taint, after the time that their claims tolerate it.

Go: pkg/controller/devicetainteviction.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from envtest.embedded.api.defaults import now
from envtest.embedded.control import kinds, pod_claims
from envtest.embedded.control.change_loop import Controller, ObjectBackOff, earliest
from envtest.embedded.control.objects import Objects, is_deleted, is_terminal, uid_of
from envtest.embedded.server import EmbeddedApiServer
from kubernetes_rules.pool_generations import newest_slices
from kubernetes_rules.taints import eviction_time

Object = dict[str, Any]

NAME = "device taint eviction"
_COMPONENT = "device-taint-eviction-controller"
_CONDITION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByDeviceTaintManager",
    "message": "Device Taint manager: deleting due to NoExecute taint",
}


class EmbeddedTaintEviction(Controller):
    """Checks all allocated claims after every change of a pod, a claim, a slice or a DeviceTaintRule.

    The status of rules (how many pods are still to be evicted) is not written.
    """

    def __init__(self, server: EmbeddedApiServer) -> None:
        super().__init__(NAME, server, (kinds.PODS, kinds.CLAIMS, kinds.SLICES, kinds.TAINT_RULES))
        self._claim_back_off, self._pod_back_off = ObjectBackOff(NAME), ObjectBackOff(NAME)

    def sync(self) -> float | None:
        """Evict the pods whose time is over; returns in how many seconds the next one is due."""
        pools, rules = newest_slices(self._objects.list(kinds.SLICES)), self._objects.list(kinds.TAINT_RULES)
        pods = {uid_of(pod): pod for pod in self._objects.list(kinds.PODS)}
        moments: dict[str, datetime] = {}

        def note_users(claim: Object) -> None:
            moment = eviction_time(pod_claims.results_of(claim), pools, rules)
            if moment is not None:
                for user in pod_claims.users_of(claim):
                    # The claim whose time is over first decides for the pod.
                    moments[user["uid"]] = min(moment, moments.get(user["uid"], moment))

        due = self._claim_back_off.for_each(self._objects.list(kinds.CLAIMS), note_users)
        doomed = [pods[uid] for uid in moments if uid in pods]
        next_due = self._pod_back_off.for_each(
            doomed, lambda pod: self._evict_in_time(pod, moments[uid_of(pod)])
        )
        return earliest(due, next_due)

    def _evict_in_time(self, pod: Object, moment: datetime) -> float | None:
        """Evict the pod if its time is over; else returns in how many seconds it is."""
        if is_deleted(pod) or is_terminal(pod):
            return None
        rest = (moment - datetime.now(UTC)).total_seconds()
        if rest > 0:
            return rest
        self._evict(pod)
        return None

    def _evict(self, pod: Object) -> None:
        reason, text = "DeviceTaintManagerEviction", "Marking for deletion"
        self._objects.post_event(pod, "Normal", reason, text, _COMPONENT)
        # The condition first: a watcher that sees the deletion then sees the reason, too.
        pod = marked_for_deletion(self._objects, pod, _CONDITION)
        self._objects.delete(kinds.PODS, pod)


def marked_for_deletion(objects: Objects, pod: Object, condition: Mapping[str, str]) -> Object:
    """The pod with a condition that says why it is deleted."""
    before = pod.get("status", {})
    others = [one for one in before.get("conditions", ()) if one["type"] != condition["type"]]
    conditions = [*others, {**condition, "lastTransitionTime": now()}]
    return objects.replace_status(kinds.PODS, pod, {**before, "conditions": conditions})
