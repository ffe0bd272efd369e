"""Nodes with GPUs that are offered whole and in shares, and pods that use them, as the API serves them."""

import copy
from functools import cache
from typing import Any

from gpuctl.explain.answer import explain_pod
from gpuctl.explain.victims import MOVABLE, Policy
from tests.clusters import Allocator, Explanation, Object, Snapshot, plan_node
from tests.deviceclasses.shipped_classes import DEFAULT, ROOT
from tests.gpuctl.explain.objects import StoredLists

CONFIG = ROOT / "deploy/examples/node-config/all-tiers.yaml"
WHOLE, SHARE = "gpu.nvidia.com", "shared-timesliced"


@cache
def _planned(node: str, machine: str) -> list[Object]:
    """What a node publishes."""
    return list(plan_node(machine, node, CONFIG).slices)


def claim_spec(device_class: str = SHARE, shares: int | None = None, count: int = 1) -> Object:
    """The spec of a claim."""
    exactly: Object = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    if shares is not None:
        exactly["capacity"] = {"requests": {"shares": str(shares)}}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


class Site:
    """A cluster that is built step by step; each node has one T4 unless it says otherwise."""

    def __init__(self, *nodes: str, machine: str = "t4") -> None:
        self.nodes: list[Object] = [{"metadata": {"name": name}, "spec": {}} for name in nodes]
        self.slices = [one for name in nodes for one in copy.deepcopy(_planned(name, machine))]
        self.classes = tuple(DEFAULT.values())
        self.pods: list[Object] = []
        self.claims: list[Object] = []
        self.budgets: list[Object] = []

    def runs(
        self,
        name: str,
        node: str,
        spec: Object,
        *,
        owner: str | None = "ReplicaSet/web",
        movable: bool = True,
        priority: int = 0,
        **pod_spec: Any,
    ) -> Object:
        """A pod that runs on a node with the devices that the scheduler would give it there."""
        pod = self.pod(name, owner=owner, movable=movable, priority=priority, **pod_spec)
        pod["spec"]["nodeName"] = node
        pod["status"] |= {"phase": "Running", "startTime": "2026-03-01T08:00:00Z"}
        claim = self.claim_of(pod, spec)
        stored = next(one for one in self.nodes if one["metadata"]["name"] == node)
        allocations = Allocator(self.slices, self.classes, self.claims).allocate(stored, [claim])
        assert allocations
        user = {"resource": "pods", "name": name, "uid": name}
        self.claims.append({**claim, "status": {"allocation": allocations[0], "reservedFor": [user]}})
        self.pods.append(pod)
        return pod

    def pod(
        self, name: str, *, owner: str | None = None, movable: bool = False, priority: int = 0, **spec: Any
    ) -> Object:
        """A pod that waits; ``owner`` is its controller, which is not in the cluster."""
        metadata: Object = {"namespace": "team", "name": name, "uid": name, "labels": {"app": name}}
        if movable:
            metadata["annotations"] = {MOVABLE: "true"}
        if owner:
            kind, _, of = owner.partition("/")
            reference = {"apiVersion": "apps/v1", "kind": kind, "name": of, "uid": of, "controller": True}
            metadata["ownerReferences"] = [reference]
        entries = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
        containers = [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}]
        body = {"containers": containers, "resourceClaims": entries, "priority": priority, **spec}
        made = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]}
        return {"metadata": metadata, "spec": body, "status": {"phase": "Pending", **made}}

    def claim_of(self, pod: Object, spec: Object) -> Object:
        """The claim that was made for a pod."""
        name = pod["metadata"]["name"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True}
        metadata = {"namespace": "team", "name": f"{name}-gpu", "uid": f"{name}-gpu"}
        return {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": spec}

    def waits(self, name: str, spec: Object, *, priority: int = 0, **pod_spec: Any) -> Object:
        """A pod that waits, with its claim."""
        pod = self.pod(name, priority=priority, **pod_spec)
        self.claims.append(self.claim_of(pod, spec))
        return pod

    def protect(self, pod: str) -> None:
        """A budget for one pod; all pods are ready, so that budgets count them."""
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": pod}}}
        status = {"disruptionsAllowed": 0, "desiredHealthy": 1, "currentHealthy": 1}
        for one in self.pods:
            one["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        metadata = {"namespace": "team", "name": f"{pod}-budget"}
        self.budgets.append({"metadata": metadata, "spec": spec, "status": status})

    def snapshot(self, *refused: str) -> Snapshot:
        """The cluster; lists of these kinds may not be read."""
        lists = {"pods": self.pods, "poddisruptionbudgets": self.budgets}
        return Snapshot(
            nodes=tuple(self.nodes),
            slices=tuple(self.slices),
            classes=self.classes,
            claims=tuple(self.claims),
            view=StoredLists(lists, refused),
        )

    def explained(self, pod: Object, *refused: str) -> Explanation:
        """Why a pod waits, and whose end would help under all policies."""
        return explain_pod(pod, self.snapshot(*refused), tuple(Policy))
