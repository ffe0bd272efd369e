"""Pods that wait for devices or cannot start with them, and pods whose claims were deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.cli.cluster import event_time
from gpuctl.cli.output import in_one_line
from gpuctl.fleet.holders import claim_key, request_classes
from kubernetes_rules.pod_claims import claim_entries, class_of, extended_claim, pod_amounts

Object = Mapping[str, Any]

_STUCK = frozenset(
    {"CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "InvalidImageName"}
    | {"ErrImageNeverPull", "CreateContainerError", "RunContainerError"}
)
_MESSAGE_CHARACTERS = 200

NOT_PREPARED = "FailedPrepareDynamicResources"
"""The reason of the kubelet's event when a claim cannot be prepared (pkg/kubelet/events)."""

_SANDBOX = "PodReadyToStartContainers"
"""True once the sandbox is there, which the kubelet makes after it has prepared all claims (KEP-3085)."""


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


def condition_of(pod: Object, kind: str) -> Object:
    """The condition of a pod of this type; empty if it has none."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})


def stuck_containers(pod: Object) -> Iterator[str]:
    """The containers that cannot be started, each with its name, the reason and the message."""
    for status in container_statuses(pod.get("status") or {}):
        waiting = (status.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _STUCK:
            words = in_one_line(str(waiting.get("message") or ""))[:_MESSAGE_CHARACTERS]
            yield f"{status['name']}: {waiting['reason']} {words}".rstrip()


def has_ended(pod: Object) -> bool:
    """Whether all containers of a pod have ended for good."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def why_not_ready(pod: Object) -> str:
    """Why a pod that should run is not ready; empty if it is, has ended, or is ending."""
    phase = str((pod.get("status") or {}).get("phase") or "Pending")
    ready = condition_of(pod, "Ready")
    is_ready = ready.get("status", "True" if phase == "Running" else "False") == "True"
    if has_ended(pod) or is_ready or pod["metadata"].get("deletionTimestamp"):
        return ""
    said = ready.get("message") or condition_of(pod, "PodScheduled").get("message")
    return next(stuck_containers(pod), "") or in_one_line(str(said or phase))[:_MESSAGE_CHARACTERS]


def asks_devices(pod: Object) -> bool:
    """Whether a pod asks for devices, by claims or by extended resources."""
    return bool(pod["spec"].get("resourceClaims") or _resources(pod))


def lacks_claim(pod: Object, claims: Container[str]) -> bool:
    """Whether a claim of the pod was not made yet, or does not exist; ``claims`` are all, by their keys.

    The scheduler does not look at such a pod, so that no condition of the pod tells of it.
    """
    namespace = pod["metadata"].get("namespace")
    return any(
        entry.claim is None or (entry.template is None and f"{namespace}/{entry.claim}" not in claims)
        for entry in claim_entries(pod)
    )


def waiting_pod(pod: Object, claims: Mapping[str, Object], classes: Iterable[Object]) -> WaitingPod:
    """The waiting pod; ``claims`` are all claims of the cluster, by ``namespace/name``."""
    metadata = pod["metadata"]
    namespace = str(metadata.get("namespace") or "")
    names = [entry.claim for entry in claim_entries(pod)] + [extended_claim(pod)]
    found = [claims.get(f"{namespace}/{name}") for name in names if name]
    asked = [device_class for claim in found if claim for _, device_class in request_classes(claim)]
    resources = _resources(pod)
    # The scheduler makes one claim for all extended resources of a pod, when it has found devices for them.
    if extended_claim(pod) is None:
        asked += [name for one, _ in resources if (name := class_of(one, classes))]
    said = str(condition_of(pod, "PodScheduled").get("message") or "")
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


def orphans(pods: Iterable[Object], claims: Iterable[Object]) -> tuple[str, ...]:
    """A sentence for each pod that runs without one of its claims; another claim may have its name now."""
    # A pod runs only while its claim is reserved for it (status.reservedFor). Kubernetes deletes no claim
    # that a pod uses, unless somebody removes the finalizer. Then the scheduler takes the devices for free,
    # and a quota no longer counts them.
    users = {
        (claim["metadata"].get("namespace"), claim["metadata"].get("name"), user.get("uid"))
        for claim in claims
        for user in (claim.get("status") or {}).get("reservedFor") or ()
    }
    placed = (pod for pod in pods if pod["spec"].get("nodeName") and not has_ended(pod))
    found = [
        f"pod {claim_key(pod)} on {pod['spec']['nodeName']} has devices from claim {name}, which is deleted"
        for pod in placed
        for name in (entry.claim for entry in claim_entries(pod))
        if name and (pod["metadata"].get("namespace"), name, pod["metadata"].get("uid")) not in users
    ]
    return tuple(sorted(found))


def not_prepared(pod: Object, events: Sequence[Object]) -> str | None:
    """The kubelet's last message that claims cannot be prepared; None if they were prepared since.

    ``events`` are about the pod, the newest last.
    """
    failed = [event for event in events if event.get("reason") == NOT_PREPARED]
    if not failed:
        return None
    # An event stays for an hour, whatever became of the pod meanwhile.
    since = max(_prepared_at(pod.get("status") or {}), default="")
    # Times are RFC 3339 in UTC, so the first 19 characters sort; an event of the same second came before.
    passed = since and event_time(failed[-1])[:19] <= since[:19]
    return None if passed else str(failed[-1].get("message", ""))


def _prepared_at(status: Object) -> Iterator[str]:
    """Times by which the pod's claims were prepared, from its status."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == _SANDBOX and condition.get("status") == "True":
            yield str(condition.get("lastTransitionTime") or "")
    for container in container_statuses(status):
        for state in (container.get("state") or {}, container.get("lastState") or {}):
            for kind in ("running", "terminated"):
                yield str((state.get(kind) or {}).get("startedAt") or "")


def container_statuses(status: Object) -> list[Object]:
    """The status of each container of a pod, init containers first."""
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
