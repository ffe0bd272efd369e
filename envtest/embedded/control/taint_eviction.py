"""Deletes the pods whose devices have a NoExecute taint, when their tolerations' time is over."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from envtest.embedded.api.defaults import now
from envtest.embedded.api.server import EmbeddedApiServer
from envtest.embedded.control.change_loop import Controller, Turns, earliest
from envtest.embedded.control.objects import (
    CLAIMS,
    PODS,
    SLICES,
    TAINT_RULES,
    is_deleted,
    is_terminal,
    uid_of,
)
from envtest.embedded.control.pod_claims import results_of, users_of
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
    """Looks at all allocated claims again after every change of a claim, a slice or a DeviceTaintRule.

    The status of rules (how many pods are still to be evicted) is not written.
    """

    def __init__(self, server: EmbeddedApiServer) -> None:
        super().__init__(NAME, server, (PODS, CLAIMS, SLICES, TAINT_RULES))
        self._claim_turns, self._pod_turns = Turns(NAME), Turns(NAME)

    def sync(self) -> float | None:
        """Evict the pods whose time has come; in how many seconds that of the next one comes."""
        pools, rules = newest_slices(self._objects.list(SLICES)), self._objects.list(TAINT_RULES)
        pods = {uid_of(pod): pod for pod in self._objects.list(PODS)}
        moments: dict[str, datetime] = {}

        def note_users(claim: Object) -> None:
            moment = eviction_time(results_of(claim), pools, rules)
            if moment is not None:
                for user in users_of(claim):
                    moments[user["uid"]] = min(moment, moments.get(user["uid"], moment))

        due = self._claim_turns.give(self._objects.list(CLAIMS), note_users)
        doomed = [pods[uid] for uid in moments if uid in pods]
        next_due = self._pod_turns.give(doomed, lambda pod: self._evict_in_time(pod, moments[uid_of(pod)]))
        return earliest(due, next_due)

    def _evict_in_time(self, pod: Object, moment: datetime) -> float | None:
        """Evict the pod if its time has come; else in how many seconds it comes."""
        if is_deleted(pod) or is_terminal(pod):
            return None
        rest = (moment - datetime.now(UTC)).total_seconds()
        if rest > 0:
            return rest
        self._evict(pod)
        return None

    def _evict(self, pod: Object) -> None:
        reason, text = "DeviceTaintManagerEviction", "Marking for deletion"
        self._objects.post_event("Pod", pod, "Normal", reason, text, _COMPONENT)
        before = pod.get("status", {})
        others = [one for one in before.get("conditions", ()) if one["type"] != _CONDITION["type"]]
        conditions = [*others, {**_CONDITION, "lastTransitionTime": now()}]
        pod = self._objects.replace_status(PODS, pod, {**before, "conditions": conditions})
        self._objects.delete(PODS, pod)
