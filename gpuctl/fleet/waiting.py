"""The pods that wait for GPUs or other devices: what they ask for, and what the scheduler said last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.fleet.holders import request_classes
from kubernetes_rules.extended_resources import asked_resources, class_of
from kubernetes_rules.pod_claims import claim_entries, extended_claim

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod in the phase Pending that asks for devices.

    ``since`` is when it was created, RFC 3339. ``classes`` are those of the claims that it has already, and
    those that its extended resources stand for. ``node`` is where it was placed, None while it has no place.
    ``said`` is the scheduler's last word.
    """

    namespace: str
    name: str
    uid: str
    version: str
    since: str
    node: str | None
    classes: tuple[str, ...]
    said: str

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def asks_devices(pod: Object) -> bool:
    """Whether a pod asks for devices, by claims or by extended resources."""
    return bool(pod["spec"].get("resourceClaims") or asked_resources(pod))


def waiting_pod(pod: Object, claims: Mapping[str, Object], classes: Iterable[Object]) -> WaitingPod:
    """A pod that waits; ``claims`` are all, by ``namespace/name``."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    namespace = str(metadata.get("namespace") or "")
    names = [entry.claim for entry in claim_entries(pod)] + [extended_claim(pod)]
    found = [claims.get(f"{namespace}/{name}") for name in names if name]
    asked = [device_class for claim in found if claim for _, device_class in request_classes(claim)]
    if extended_claim(pod) is None:
        asked += [name for one in asked_resources(pod) if (name := class_of(one, classes))]
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
    )


def queues(pods: Iterable[WaitingPod]) -> Counter[str]:
    """How many pods wait for a device of each class."""
    return Counter(name for pod in pods if pod.node is None for name in pod.classes)
