"""Taints nodes by their conditions, and deletes the pods that do not tolerate such a taint.

Go: pkg/controller/nodelifecycle and pkg/controller/tainteviction. Left out is the watch over heartbeats: the
condition Ready of a node stays as it was written last, and a node without one counts as ready.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from envtest.embedded.api.defaults import now
from envtest.embedded.control import kinds
from envtest.embedded.control.change_loop import Controller, ObjectBackOff, earliest
from envtest.embedded.control.objects import is_deleted, is_terminal, uid_of
from envtest.embedded.control.taint_eviction import marked_for_deletion
from envtest.embedded.server import EmbeddedApiServer
from kubernetes_rules.taints import CORDONED, tolerates

Object = dict[str, Any]
Json = Mapping[str, Any]

NAME = "node lifecycle"
_COMPONENT = "taint-eviction-controller"
_CONDITION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByTaintManager",
    "message": "Taint manager: deleting due to NoExecute taint",
}
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
_KEYS = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
}
"""The taints of a node, by type and status of its conditions."""

_MANAGED = {(key, "NoSchedule") for key in (*_KEYS.values(), CORDONED["key"])} | {
    (NOT_READY, "NoExecute"),
    (UNREACHABLE, "NoExecute"),
}


class EmbeddedNodeLifecycle(Controller):
    """Checks all nodes and pods after every change of one."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        super().__init__(NAME, server, (kinds.NODES, kinds.PODS))
        self._node_back_off, self._pod_back_off = ObjectBackOff(NAME), ObjectBackOff(NAME)
        self._tolerating_since: dict[str, float] = {}

    def sync(self) -> float | None:
        """Write the taints and delete pods; returns in how many seconds the next pod is due."""
        nodes = self._objects.list(kinds.NODES)
        due = self._node_back_off.for_each(nodes, self._taint)
        taints = {node["metadata"]["name"]: no_execute_taints(node) for node in nodes}
        doomed = [
            pod
            for pod in self._objects.list(kinds.PODS)
            if taints.get(pod["spec"].get("nodeName") or "") and not is_deleted(pod) and not is_terminal(pod)
        ]
        here = {uid_of(pod) for pod in doomed}
        self._tolerating_since = {uid: one for uid, one in self._tolerating_since.items() if uid in here}
        return earliest(
            due,
            self._pod_back_off.for_each(
                doomed, lambda pod: self._evict_in_time(pod, taints[pod["spec"]["nodeName"]])
            ),
        )

    def _taint(self, node: Object) -> None:
        taints = lifecycle_taints(node)
        if taints != ((node.get("spec") or {}).get("taints") or []):
            spec = {key: value for key, value in (node.get("spec") or {}).items() if key != "taints"}
            changed = {**node, "spec": {**spec, "taints": taints} if taints else spec}
            self._objects.replace(kinds.NODES, changed)

    def _evict_in_time(self, pod: Object, taints: Sequence[Json]) -> float | None:
        """Delete the pod if its time is over; else returns in how many seconds it is, None for never."""
        seconds = tolerated_seconds(taints, pod["spec"].get("tolerations") or ())
        if seconds is None:
            self._tolerating_since.pop(uid_of(pod), None)
            return None
        since = self._tolerating_since.setdefault(uid_of(pod), time.monotonic())
        rest = since + seconds - time.monotonic()
        if rest > 0:
            return rest
        text = f"Marking for deletion Pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
        self._objects.post_event(pod, "Normal", "TaintManagerEviction", text, _COMPONENT)
        pod = marked_for_deletion(self._objects, pod, _CONDITION)
        self._objects.delete(kinds.PODS, pod)
        return None


def lifecycle_taints(node: Json) -> list[Json]:
    """The taints that a node is to have: those of others, and those that follow from its state."""
    spec = node.get("spec") or {}
    wanted = [
        (key, effect)
        for one in (node.get("status") or {}).get("conditions") or ()
        if (key := _KEYS.get((one["type"], one["status"])))
        for effect in ("NoSchedule", *(["NoExecute"] if one["type"] == "Ready" else []))
    ]
    if spec.get("unschedulable"):
        wanted.append((CORDONED["key"], CORDONED["effect"]))
    present = {(one["key"], one["effect"]): one for one in spec.get("taints") or ()}
    kept = [one for key, one in present.items() if key not in _MANAGED or key in wanted]
    added = [key for key in dict.fromkeys(wanted) if key not in present]
    return [*kept, *({"key": key, "effect": effect, "timeAdded": now()} for key, effect in added)]


def no_execute_taints(node: Json) -> list[Json]:
    """The taints of a node that delete its pods (NoExecute)."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return [one for one in taints if one["effect"] == "NoExecute"]


def tolerated_seconds(taints: Sequence[Json], tolerations: Sequence[Json]) -> float | None:
    """For how long a pod may stay on a node with these taints: 0 for not at all, None for ever.

    Of the tolerations for a taint the first counts (Go: GetMatchingTolerations and getMinTolerationTime).
    """
    found = [next((one for one in tolerations if tolerates(one, taint)), None) for taint in taints]
    if any(one is None for one in found):
        return 0.0
    seconds = [one["tolerationSeconds"] for one in found if one and one.get("tolerationSeconds") is not None]
    return max(0.0, min(seconds)) if seconds else None
