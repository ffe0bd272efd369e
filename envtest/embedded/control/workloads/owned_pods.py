"""Makes and deletes the pods of a workload, and posts events about it, as kube-controller-manager does.

Go: RealPodControl and ActivePodsWithRanks in pkg/controller/controller_utils.go. Pods are never adopted: a
workload has the pods that it made.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from envtest.embedded.api.statuses import Refused
from envtest.embedded.control import kinds
from envtest.embedded.control.objects import Objects, is_deleted, is_terminal, uid_of

Object = dict[str, Any]

_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = ("Pending", "Unknown", "Running")


class OwnedPods:
    """Makes and deletes pods for workloads; events name the controller ``component``."""

    def __init__(self, objects: Objects, component: str) -> None:
        self._objects = objects
        self._component = component

    def create(self, owner: Object, pod: Mapping[str, Any]) -> None:
        """Create a pod; raises Refused, after an event about it."""
        try:
            made = self._objects.create(kinds.PODS, owner["metadata"]["namespace"], dict(pod))
        except Refused as refused:
            if not _namespace_is_terminating(refused):
                # In a namespace that is being deleted this is no news.
                text = f"Error creating: {refused}"
                self._objects.post_event(owner, "Warning", "FailedCreate", text, self._component)
            raise
        text = f"Created pod: {made['metadata']['name']}"
        self._objects.post_event(owner, "Normal", "SuccessfulCreate", text, self._component)

    def delete(self, owner: Object, pod: Object) -> None:
        """Delete a pod."""
        self._objects.delete(kinds.PODS, pod)
        text = f"Deleted pod: {pod['metadata']['name']}"
        self._objects.post_event(owner, "Normal", "SuccessfulDelete", text, self._component)


def by_controller(items: Iterable[Object]) -> dict[str, list[Object]]:
    """The objects by the UIDs of their controllers; those without one are left out."""
    found: dict[str, list[Object]] = defaultdict(list)
    for item in items:
        uid = controller_uid(item)
        if uid:
            found[uid].append(item)
    return found


def controller_uid(item: Mapping[str, Any]) -> str:
    """The UID of an object's controller; empty where it has none."""
    references = item["metadata"].get("ownerReferences") or ()
    return next((str(one["uid"]) for one in references if one.get("controller")), "")


def controlled_by(owner: Object) -> Object:
    """The reference by which an object belongs to its controller (metav1.NewControllerRef)."""
    named = {"name": owner["metadata"]["name"], "uid": uid_of(owner)}
    kind = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    # blockOwnerDeletion: a deletion in the foreground waits for the object.
    return {**kind, **named, "controller": True, "blockOwnerDeletion": True}


def pod_of(owner: Object, template: Mapping[str, Any]) -> Object:
    """A new pod of a workload, from its template."""
    metadata = template.get("metadata") or {}
    kept = {key: metadata[key] for key in ("labels", "annotations", "finalizers") if metadata.get(key)}
    name = {"generateName": f"{owner['metadata']['name']}-", "ownerReferences": [controlled_by(owner)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**kept, **name}, "spec": template["spec"]}


def is_active(pod: Mapping[str, Any]) -> bool:
    """Whether a pod runs or is about to, and is not deleted."""
    return not is_terminal(pod) and not is_deleted(pod)


def is_terminating(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is deleted and has not ended yet."""
    return is_deleted(pod) and not is_terminal(pod)


def ready_since(pod: Mapping[str, Any]) -> datetime | None:
    """Since when a pod is ready, None where it is not."""
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one["type"] == "Ready" and one["status"] == "True":
            text = one.get("lastTransitionTime") or pod["metadata"]["creationTimestamp"]
            return datetime.fromisoformat(text)
    return None


def seconds_to_available(pod: Mapping[str, Any], least_seconds: int) -> float | None:
    """How long a pod still has to be ready to count as available: 0 for one that does, None if not ready."""
    since = ready_since(pod)
    if since is None:
        return None
    return max(0.0, least_seconds - (datetime.now(UTC) - since).total_seconds()) if least_seconds else 0.0


def deletion_order(pods: Sequence[Object], related: Iterable[Object] = ()) -> list[Object]:
    """The pods in the order in which they are deleted: those that have not begun before long-running ones.

    ``related`` are the pods of the same application: the node with most of them loses one first. Among pods
    that are equal in all of it the choice is arbitrary.
    """
    nodes = Counter(_node(pod) for pod in related if is_active(pod))
    now = datetime.now(UTC)

    def rank(pod: Object) -> tuple[Any, ...]:
        metadata, since = pod["metadata"], ready_since(pod)
        cost = int((metadata.get("annotations") or {}).get(_COST) or 0)
        phase = (pod.get("status") or {}).get("phase", "Pending")
        return (
            # Without a node first, then by phase, then those that are not ready, then by the cost that users
            # set.
            bool(_node(pod)),
            _PHASES.index(phase) if phase in _PHASES else 0,
            since is not None,
            cost,
            # From the node with the most pods, then those that became ready last, restarted most, are
            # youngest.
            -nodes[_node(pod)],
            _magnitude(now, since) if since else 0,
            -_restarts(pod),
            _magnitude(now, datetime.fromisoformat(metadata["creationTimestamp"])),
            metadata["uid"],
        )

    return sorted(pods, key=rank)


def _node(pod: Mapping[str, Any]) -> str:
    return str(pod["spec"].get("nodeName") or "")


def _restarts(pod: Mapping[str, Any]) -> int:
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((int(one.get("restartCount", 0)) for one in containers), default=0)


def _magnitude(now: datetime, moment: datetime) -> int:
    age = (now - moment).total_seconds() * 1e9
    # Pods of about the same age count as equally old, which spreads the choice (LogarithmicScaleDown).
    return int(math.log2(age)) if age > 0 else -1


def _namespace_is_terminating(refused: Refused) -> bool:
    causes = (refused.body.get("details") or {}).get("causes") or ()
    return any(one.get("reason") == "NamespaceTerminating" for one in causes)
