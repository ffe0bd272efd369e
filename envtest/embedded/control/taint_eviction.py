"""Deletes the pods whose devices have a NoExecute taint, when their tolerations' time is over."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from driver.process.service import Service
from envtest.embedded.control.change_loop import ChangeLoop
from envtest.embedded.control.objects import (
    CLAIMS,
    PODS,
    SLICES,
    TAINT_RULES,
    Objects,
    is_deleted,
    is_terminal,
    now,
    uid_of,
)
from envtest.embedded.control.pod_claims import results_of, users_of
from envtest.embedded.control.turns import Turns
from kubernetes_rules.device_eviction import eviction_time
from kubernetes_rules.pool_generations import newest_slices

if TYPE_CHECKING:
    from envtest.embedded.api.server import EmbeddedApiServer

Object = dict[str, Any]

NAME = "device taint eviction"
COMPONENT = "device-taint-eviction-controller"
_CONDITION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByDeviceTaintManager",
    "message": "Device Taint manager: deleting due to NoExecute taint",
}


class EmbeddedTaintEviction:
    """Looks at all allocated claims again after every change of a claim, a slice or a DeviceTaintRule.

    The status of rules (how many pods are still to be evicted) is not written.
    """

    def __init__(self, server: EmbeddedApiServer) -> None:
        self._objects = Objects(server)
        self._service = Service()
        self._claim_turns, self._pod_turns = Turns(NAME), Turns(NAME)
        watched = (PODS, CLAIMS, SLICES, TAINT_RULES)
        self._loop = ChangeLoop(NAME, server, watched, self.sync)

    def start(self) -> None:
        """Run in a thread of its own until ``stop``."""
        self._loop.start(self._service)

    def stop(self) -> None:
        """End the thread."""
        self._service.stop()

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
        return min((wait for wait in (due, next_due) if wait is not None), default=None)

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
        self._objects.tell("Pod", pod, "Normal", reason, text, COMPONENT)
        before = pod.get("status", {})
        others = [one for one in before.get("conditions", ()) if one["type"] != _CONDITION["type"]]
        conditions = [*others, {**_CONDITION, "lastTransitionTime": now()}]
        pod = self._objects.replace_status(PODS, pod, {**before, "conditions": conditions})
        self._objects.delete(PODS, pod)
