"""Pods that wait for GPUs or other devices, and pods whose claims were deleted while they had devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.fleet.holders import request_classes
from kubernetes_rules.extended_resources import class_of, pod_amounts
from kubernetes_rules.pod_claims import claim_entries, extended_claim

Object = Mapping[str, Any]

_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod in the phase Pending that asks for devices.

    ``since`` is when it was created, RFC 3339. ``classes`` are the classes that its existing claims ask for,
    and those of its extended resources, the resources in its limits. ``resources`` are these with their
    amounts. ``node`` is where it was placed, None before that. ``said`` is the scheduler's last message.
    """

    namespace: str
    name: str
    uid: str
    version: str
    since: str
    node: str | None
    classes: tuple[str, ...]
    said: str
    resources: tuple[tuple[str, int], ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def asks(self) -> tuple[str, ...]:
        """The classes that it asks for, then the resources in its limits, such as ``nvidia.com/gpu: 2``."""
        return (*self.classes, *(f"{name}: {amount}" for name, amount in self.resources))


def asks_devices(pod: Object) -> bool:
    """Whether a pod asks for devices, by claims or by extended resources."""
    return bool(pod["spec"].get("resourceClaims") or _resources(pod))


def waiting_pod(pod: Object, claims: Mapping[str, Object], classes: Iterable[Object]) -> WaitingPod:
    """The waiting pod; ``claims`` are all claims of the cluster, by ``namespace/name``."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    namespace = str(metadata.get("namespace") or "")
    names = [entry.claim for entry in claim_entries(pod)] + [extended_claim(pod)]
    found = [claims.get(f"{namespace}/{name}") for name in names if name]
    asked = [device_class for claim in found if claim for _, device_class in request_classes(claim)]
    resources = _resources(pod)
    # The scheduler makes one claim for all extended resources of a pod, when it has found devices for them.
    if extended_claim(pod) is None:
        asked += [name for one, _ in resources if (name := class_of(one, classes))]
    conditions = status.get("conditions") or ()
    said = next(
        (str(one.get("message") or "") for one in conditions if one.get("type") == "PodScheduled"), ""
    )
    node = pod["spec"].get("nodeName")
    return WaitingPod(
        namespace,
        str(metadata["name"]),
        str(metadata.get("uid") or ""),
        str(metadata.get("resourceVersion") or ""),
        str(metadata.get("creationTimestamp") or ""),
        str(node) if node else None,
        tuple(dict.fromkeys(asked)),
        said,
        resources,
    )


def _resources(pod: Object) -> tuple[tuple[str, int], ...]:
    """The extended resources that the pod asks for, by name."""
    return tuple(sorted((name, amount) for name, amount in pod_amounts(pod).items() if amount))


def queues(pods: Iterable[WaitingPod]) -> Counter[str]:
    """How many pods wait for a device of each class."""
    return Counter(name for pod in pods if pod.node is None for name in pod.classes)


@dataclass(frozen=True, slots=True)
class Orphan:
    """A pod on a node whose claim was deleted; another claim may have its name now."""

    namespace: str
    pod: str
    node: str
    claim: str

    def __str__(self) -> str:
        return (
            f"pod {self.namespace}/{self.pod} on {self.node} has devices from claim {self.claim}, "
            "which is deleted"
        )


def orphans(pods: Iterable[Object], claims: Iterable[Object]) -> tuple[Orphan, ...]:
    """The pods that run without one of their claims, by namespace and name."""
    # A pod runs only while its claim is reserved for it (status.reservedFor). Kubernetes deletes no claim
    # that a pod uses, unless somebody removes the finalizer. Then the scheduler takes the devices for free,
    # and a quota no longer counts them.
    users = {
        (claim["metadata"].get("namespace"), claim["metadata"].get("name"), user.get("uid"))
        for claim in claims
        for user in (claim.get("status") or {}).get("reservedFor") or ()
    }
    found = [
        Orphan(pod["metadata"]["namespace"], pod["metadata"]["name"], pod["spec"]["nodeName"], name)
        for pod in pods
        if (pod.get("status") or {}).get("phase") not in _ENDED and (pod.get("spec") or {}).get("nodeName")
        for name in _claims_of(pod)
        if (pod["metadata"]["namespace"], name, pod["metadata"].get("uid")) not in users
    ]
    return tuple(sorted(found, key=lambda one: (one.namespace, one.pod, one.claim)))


def _claims_of(pod: Object) -> Iterator[str]:
    """The names of a pod's claims: those that it names itself, and those made from templates."""
    made = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    yield from (str(one["resourceClaimName"]) for one in made if one.get("resourceClaimName"))
    named = (pod.get("spec") or {}).get("resourceClaims") or ()
    yield from (str(one["resourceClaimName"]) for one in named if one.get("resourceClaimName"))
