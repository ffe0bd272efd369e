"""Makes and deletes the pods of a workload, and posts events about it, as kube-controller-manager does.

Go: RealPodControl and ActivePodsWithRanks in pkg/controller/controller_utils.go. Pods are never adopted: a
workload has the pods that it made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from envtest.embedded.api.statuses import Refused
from envtest.embedded.control import kinds
from envtest.embedded.control.objects import Objects, is_deleted, is_terminal, uid_of

Object = dict[str, Any]

REFUSED_SECONDS = 1.0
"""When a refused pod is tried again; a change of any pod has it tried sooner."""


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


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def deletion_order(pods: Sequence[Object]) -> list[Object]:
    """The pods in the order in which they are deleted.

    Those without a node go first, then by phase, those that are not ready, and the youngest. Kubernetes
    looks at a cost that users set, and spreads the choice over nodes, too.
    """

    def rank(pod: Object) -> tuple[bool, bool, bool]:
        runs = (pod.get("status") or {}).get("phase") == "Running"
        return bool(pod["spec"].get("nodeName")), runs, is_ready(pod)

    by_age = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True)
    return sorted(by_age, key=rank)


def _namespace_is_terminating(refused: Refused) -> bool:
    causes = (refused.body.get("details") or {}).get("causes") or ()
    return any(one.get("reason") == "NamespaceTerminating" for one in causes)
