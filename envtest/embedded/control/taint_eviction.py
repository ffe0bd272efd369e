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
from kubernetes_rules.device_eviction import eviction_time
from kubernetes_rules.pool_generations import newest_slices

if TYPE_CHECKING:
    from envtest.embedded.api.server import EmbeddedApiServer

Object = dict[str, Any]

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
        watched = (PODS, CLAIMS, SLICES, TAINT_RULES)
        self._loop = ChangeLoop("device taint eviction", server, watched, self.sync)

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
        for claim in self._objects.list(CLAIMS):
            moment = eviction_time(results_of(claim), pools, rules)
            if moment is not None:
                for user in users_of(claim):
                    moments[user["uid"]] = min(moment, moments.get(user["uid"], moment))
        waits = []
        for uid, moment in moments.items():
            pod = pods.get(uid)
            if pod is None or is_deleted(pod) or is_terminal(pod):
                continue
            rest = (moment - datetime.now(UTC)).total_seconds()
            if rest > 0:
                waits.append(rest)
            else:
                self._evict(pod)
        return min(waits, default=None)

    def _evict(self, pod: Object) -> None:
        reason, text = "DeviceTaintManagerEviction", "Marking for deletion"
        self._objects.tell("Pod", pod, "Normal", reason, text, COMPONENT)
        before = pod.get("status", {})
        others = [one for one in before.get("conditions", ()) if one["type"] != _CONDITION["type"]]
        conditions = [*others, {**_CONDITION, "lastTransitionTime": now()}]
        pod = self._objects.replace_status(PODS, pod, {**before, "conditions": conditions})
        self._objects.delete(PODS, pod)
