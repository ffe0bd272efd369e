"""Finds the claims and pods that use a GPU, and evicts pods."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from driver.devices.names import pool_name
from driver.kinds.registry import KINDS
from driver.kube.client import KubeClient
from driver.kube.errors import Conflict, NotFound, TooManyRequests
from driver.kube.evictions import evict_pod
from driver.kube.paths import pod_path
from gpuctl.cli.cluster import ClusterView
from gpuctl.fleet.holders import Object, allocated


@dataclass(frozen=True, slots=True)
class PodInTheWay:
    """A pod that uses a GPU."""

    namespace: str
    name: str
    uid: str
    controller: str | None
    """What recreates it: ReplicaSet/web."""
    ends: bool
    """Whether it is being deleted already."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ClaimInTheWay:
    """A claim that has devices of the GPUs, if only with admin access."""

    namespace: str
    name: str
    devices: tuple[str, ...]
    pods: tuple[PodInTheWay, ...]
    others: tuple[str, ...] = ()
    """Users other than pods."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def claims_using(view: ClusterView, node: str, gpus: Collection[str]) -> tuple[ClaimInTheWay, ...]:
    """The claims that have a device of these GPUs of the node; raises ApiError."""
    found = []
    for claim in view.claims():
        devices = tuple(_devices(claim, node, gpus))
        if not devices:
            continue
        metadata = claim["metadata"]
        # Not only pods: a PodGroup of scheduling.k8s.io can be a user, too.
        users = (claim.get("status") or {}).get("reservedFor") or ()
        pods = [pod for user in users if (pod := _pod(view, metadata["namespace"], user)) is not None]
        others = [f"{user.get('resource')}/{user.get('name')}" for user in users if not _is_pod(user)]
        found.append(
            ClaimInTheWay(metadata["namespace"], metadata["name"], devices, tuple(pods), tuple(others))
        )
    return tuple(found)


def _devices(claim: Object, node: str, gpus: Collection[str]) -> Iterable[str]:
    for one in allocated(claim):
        name = KINDS.parse(one.device) if one.pool == pool_name(node) else None
        if name is not None and any(region.pci in gpus for region in name.regions):
            yield one.device


def _is_pod(user: Object) -> bool:
    return user.get("resource") == "pods" and not user.get("apiGroup")


def _pod(view: ClusterView, namespace: str, user: Object) -> PodInTheWay | None:
    """The pod that a claim is reserved for; None for another user, and for a pod that is gone."""
    pod = view.found(pod_path(namespace, str(user["name"]))) if _is_pod(user) else None
    if pod is None or pod["metadata"]["uid"] != user.get("uid"):
        return None
    metadata = pod["metadata"]
    owners = (one for one in metadata.get("ownerReferences") or () if one.get("controller"))
    controller = next((f"{one['kind']}/{one['name']}" for one in owners), None)
    ends = "deletionTimestamp" in metadata
    return PodInTheWay(namespace, str(user["name"]), str(user["uid"]), controller, ends)


def evict(client: KubeClient, pod: PodInTheWay) -> str | None:
    """Evict a pod by the Eviction API, which keeps to PodDisruptionBudgets. Raises ApiError.

    The answer is why the pod cannot end now (another try may succeed), None when it ends or is gone.
    """
    try:
        evict_pod(client, pod.namespace, pod.name, pod.uid)
    except TooManyRequests as error:
        # 429 is the answer while a budget allows no disruption.
        return error.what
    except (NotFound, Conflict):
        pass  # it is gone, or another pod has its name now
    return None
