"""What a pod asks for by extended resources: on each node by a claim, or of the node's device plugin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from gpuctl.explain.snapshot import Snapshot
from kubernetes_rules.extended_resources import class_of, extended_requests, pod_amounts, provides
from kubernetes_rules.quantity import Quantity

Object = dict[str, Any]


class ExtendedResources:
    """The extended resources of one pod that has no claim for them yet (KEP-5004).

    A node with a device plugin for a resource gives it itself; elsewhere the scheduler makes a claim for the
    DeviceClass that names it. Go: filterExtendedResources in plugins/dynamicresources.
    """

    def __init__(self, pod: Object, snapshot: Snapshot) -> None:
        self._pod = pod
        self._pods = snapshot.pods or ()
        self._asked = {name: amount for name, amount in pod_amounts(pod).items() if amount}
        self._class_of = {name: class_of(name, snapshot.classes) for name in sorted(self._asked)}
        self._claims: dict[tuple[str, ...], Object] = {}
        self.nowhere = tuple(
            name
            for name, device_class in self._class_of.items()
            if device_class is None and not any(provides(node, name) for node in snapshot.nodes)
        )
        """The resources that no DeviceClass names and that no node has itself."""

    @property
    def asks_devices(self) -> bool:
        """Whether the pod asks for any extended resource."""
        return bool(self._asked)

    def claim_on(self, node: Object) -> Object | None:
        """The claim that the pod would get on this node, None where it needs none."""
        backed = {
            name: device_class
            for name, device_class in self._class_of.items()
            if device_class is not None and not provides(node, name)
        }
        key = tuple(backed)
        if key not in self._claims:
            requests = extended_requests(self._pod, backed).requests
            self._claims[key] = self._claim(requests) if requests else {}
        return self._claims[key] or None

    def missing_on(self, node: Object) -> str | None:
        """The resource that neither the node has itself nor a claim can give there; None without one."""
        for name, device_class in self._class_of.items():
            if device_class is None and name not in self.nowhere and not provides(node, name):
                return f"it has no {name}"
        return None

    def shortage_on(self, node: Object) -> str | None:
        """What the node's device plugins have too little of; None if they have enough."""
        for name, asked in self._asked.items():
            if not provides(node, name):
                continue
            there = Quantity.parse(str(node["status"]["allocatable"][name])).scaled(0)
            used = self._used[node["metadata"]["name"], name]
            if there - used < asked:
                pods = f", {used} of them for other pods" if used else ""
                return f"its device plugin has {there} {name}{pods}; {asked} is needed"
        return None

    @cached_property
    def _used(self) -> Counter[tuple[str, str]]:
        """How many device plugins gave to pods, by node and resource, without those by claims."""
        used: Counter[tuple[str, str]] = Counter()
        for pod in self._pods:
            by_claim = _by_claim(pod)
            for resource, amount in pod_amounts(pod).items():
                if resource in self._asked and resource not in by_claim:
                    used[str(pod["spec"].get("nodeName")), resource] += amount
        return used

    def _claim(self, requests: Sequence[Object]) -> Object:
        """The claim before the scheduler makes it."""
        metadata = self._pod["metadata"]
        return unmade_claim(
            f"{metadata['name']}-extended-resources",
            metadata["namespace"],
            {"devices": {"requests": list(requests)}},
        )


def unmade_claim(name: str, namespace: str, spec: Object) -> Object:
    """A claim that does not exist yet, as it will be."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"},
        "spec": spec,
    }


def _by_claim(pod: Mapping[str, Any]) -> set[str]:
    told = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    return {str(one.get("resourceName")) for one in told.get("requestMappings") or ()}
