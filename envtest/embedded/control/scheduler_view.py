"""What one pass of the scheduler sees: nodes, classes, and an allocator that knows what is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envtest.embedded.control.objects import (
    CLAIMS,
    CLASSES,
    NODES,
    PODS,
    SLICES,
    TAINT_RULES,
    is_deleted,
    is_terminal,
    uid_of,
)
from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.device_taint_rules import tainted_slices

if TYPE_CHECKING:
    from envtest.embedded.control.objects import Objects

Object = dict[str, Any]

SCHEDULER_NAME = "default-scheduler"


class ClusterView:
    """The cluster at one moment, brought up to date by the scheduler's own decisions."""

    def __init__(self, objects: Objects) -> None:
        pods = objects.list(PODS)
        self.nodes = objects.list(NODES)
        self.classes = objects.list(CLASSES)
        self.waiting = sorted((pod for pod in pods if _waits(pod)), key=_age)
        slices = tainted_slices(objects.list(SLICES), objects.list(TAINT_RULES))
        allocated = [claim for claim in objects.list(CLAIMS) if claim.get("status", {}).get("allocation")]
        self.allocator = Allocator(slices, self.classes, allocated)
        self._class_names = {one["metadata"]["name"] for one in self.classes}
        self._load = {node["metadata"]["name"]: 0 for node in self.nodes}
        for pod in pods:
            node = (pod.get("spec") or {}).get("nodeName")
            if node and not is_terminal(pod):
                self.count_pod(node)

    def has_class(self, name: str) -> bool:
        """Whether there is such a DeviceClass."""
        return name in self._class_names

    def count_pod(self, node: str) -> None:
        """One more pod is bound to the node."""
        self._load[node] = self._load.get(node, 0) + 1

    def load(self, node: Object) -> int:
        """How many pods that have not ended are bound to the node."""
        return self._load[node["metadata"]["name"]]


def _waits(pod: Object) -> bool:
    """Whether the pod is this scheduler's to place."""
    spec = pod.get("spec") or {}
    return bool(spec) and not (
        spec.get("nodeName")
        or is_deleted(pod)
        or is_terminal(pod)
        or spec.get("schedulingGates")
        or spec.get("schedulerName", SCHEDULER_NAME) != SCHEDULER_NAME
    )


def _age(pod: Object) -> tuple[str, int, str]:
    """The older pod first; within a second the one that was stored first."""
    metadata = pod["metadata"]
    return metadata.get("creationTimestamp", ""), int(metadata.get("resourceVersion", 0)), uid_of(pod)
