"""Gives each node a pod of each DaemonSet, and replaces old ones. Go: pkg/controller/daemon."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from envtest.embedded.control import kinds
from envtest.embedded.control.change_loop import earliest
from envtest.embedded.control.objects import Objects, is_deleted, uid_of
from envtest.embedded.control.workloads import daemon_plan
from envtest.embedded.control.workloads.owned_pods import OwnedPods, pod_of, seconds_to_available
from envtest.embedded.control.workloads.revisions import POD_LABEL, History, Revisions

Object = dict[str, Any]

_COMPONENT = "daemonset-controller"
_FIRST_BACK_OFF_SECONDS, _LAST_BACK_OFF_SECONDS = 1.0, 900.0
"""How long a failed pod stays before it is deleted, so that pods that fail at once do not hot-loop."""

GENERATION = "deprecated.daemonset.template.generation"
"""The annotation of a DaemonSet that counts its templates."""


class DaemonSets:
    """Reconciles single DaemonSets. For one thread."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._pods = OwnedPods(objects, _COMPONENT)
        self._revisions = Revisions(objects, POD_LABEL)
        self._failed: dict[tuple[str, str], tuple[float, float]] = {}

    def sync(self, daemon_set: Object, pods: Sequence[Object], nodes: Sequence[Object]) -> float | None:
        """Create and delete pods, and write the status; returns in how many seconds it is due again.

        ``pods`` are those of the DaemonSet.
        """
        if is_deleted(daemon_set):
            return None
        history = self._revisions.history(daemon_set)
        digest = history.newest["metadata"]["labels"][POD_LABEL]
        view = daemon_plan.View(daemon_set, nodes, daemon_plan.by_node(pods), digest)
        plan = daemon_plan.managed(view)
        waits = [self._deleted_after_end(daemon_set, reason, pod, plan) for reason, pod in plan.ended]
        if not plan.create and not plan.delete:
            if daemon_set["spec"]["updateStrategy"]["type"] == "RollingUpdate":
                plan = daemon_plan.rolled(view)
            self._clean_up(daemon_set, pods, history)
        self._write_status(daemon_set, view, history.collisions)
        for node in plan.create:
            self._pods.create(daemon_set, _pod_for(daemon_set, node, digest))
        for pod in plan.delete:
            self._pods.delete(daemon_set, pod)
        least = daemon_set["spec"].get("minReadySeconds", 0)
        ripening = [wait for pod in pods if (wait := seconds_to_available(pod, least))]
        return earliest(*waits, *ripening)

    def _deleted_after_end(
        self, daemon_set: Object, reason: str, pod: Object, plan: daemon_plan.Plan
    ) -> float | None:
        """Plan the deletion of a pod that has ended; returns how long a failed one is still left."""
        name, node = pod["metadata"]["name"], daemon_plan.node_of(pod)
        failed = reason == daemon_plan.FAILED
        key, moment = (uid_of(daemon_set), node), time.monotonic()
        if failed and key in self._failed:
            seconds, since = self._failed[key]
            if moment - since < seconds:
                return since + seconds - moment
        if failed:
            # A back-off is forgotten after twice its longest wait (flowcontrol.Backoff).
            before = self._failed.get(key, (0.0, moment))
            known = before[0] if moment - before[1] < 2 * _LAST_BACK_OFF_SECONDS else 0.0
            seconds = min(max(2 * known, _FIRST_BACK_OFF_SECONDS), _LAST_BACK_OFF_SECONDS)
            self._failed[key] = seconds, moment
        found, done = ("failed", "kill") if failed else ("succeeded", "delete")
        where = f"{pod['metadata']['namespace']}/{name}"
        text = f"Found {found} daemon pod {where} on node {node}, will try to {done} it"
        kind = "Warning" if failed else "Normal"
        self._objects.post_event(daemon_set, kind, reason, text, _COMPONENT)
        plan.delete.append(pod)
        return None

    def _clean_up(self, daemon_set: Object, pods: Sequence[Object], history: History) -> None:
        """Delete the oldest revisions beyond the limit, except for those that pods still have."""
        live = {(pod["metadata"].get("labels") or {}).get(POD_LABEL) for pod in pods}
        unused = [one for one in history.others if one["metadata"]["labels"].get(POD_LABEL) not in live]
        count = len(history.others) - daemon_set["spec"].get("revisionHistoryLimit", 10)
        self._revisions.delete_oldest(unused, count)

    def _write_status(self, daemon_set: Object, view: daemon_plan.View, collisions: int) -> None:
        before = daemon_set.get("status") or {}
        status = {
            **{name: before[name] for name in ("conditions",) if name in before},
            **daemon_plan.counted(view),
            "observedGeneration": daemon_set["metadata"]["generation"],
            **({"collisionCount": collisions} if collisions else {}),
        }
        if status != before:
            self._objects.replace_status(kinds.DAEMON_SETS, daemon_set, status)


def _pod_for(daemon_set: Object, node: str, digest: str) -> Object:
    template = daemon_set["spec"]["template"]
    pod = pod_of(daemon_set, template)
    generation = (daemon_set["metadata"].get("annotations") or {}).get(GENERATION)
    labels = {
        **(pod["metadata"].get("labels") or {}),
        **({"pod-template-generation": generation} if generation else {}),
        POD_LABEL: digest,
    }
    spec = {
        **pod["spec"],
        "affinity": daemon_plan.on_node(pod["spec"].get("affinity"), node),
        "tolerations": daemon_plan.daemon_tolerations(pod["spec"]),
    }
    return {**pod, "metadata": {**pod["metadata"], "labels": labels}, "spec": spec}
