"""Finds the claims and pods that use the GPUs to be changed, and makes room: cordon and eviction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from driver.devices.names import pool_name
from driver.kinds.registry import KINDS
from driver.kube.client import KubeClient
from driver.kube.errors import Conflict, NotFound, TooManyRequests
from driver.kube.evictions import evict_pod
from driver.kube.paths import NODES, object_path, pod_path
from driver.nvml.pci_address import PciAddress
from gpuctl.cli.cluster import ClusterView
from gpuctl.fleet.holders import Object, allocated


@dataclass(frozen=True, slots=True)
class PodInTheWay:
    """A pod that uses a GPU. ``controller`` is its controller (``ReplicaSet/web``), None without one.

    ``ends`` says whether it is being deleted already.
    """

    namespace: str
    name: str
    uid: str
    controller: str | None
    ends: bool

    @property
    def of_daemon_set(self) -> bool:
        """Whether a DaemonSet starts such a pod again in spite of a cordon."""
        # The pods of DaemonSets tolerate node.kubernetes.io/unschedulable.
        return (self.controller or "").startswith("DaemonSet/")

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ClaimInTheWay:
    """A claim that has devices of the GPUs, if only with admin access.

    ``others`` are users other than pods.
    """

    namespace: str
    name: str
    devices: tuple[str, ...]
    pods: tuple[PodInTheWay, ...]
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def line(self, words: Callable[[PodInTheWay], str]) -> str:
        """The claim with its devices and users, for people; ``words`` describe a pod."""
        users = ", ".join((*map(words, self.pods), *self.others)) or "not in use now"
        return f"  claim {self} has {', '.join(self.devices)}: {users}"


def claims_using(view: ClusterView, node: str, gpus: Collection[PciAddress]) -> tuple[ClaimInTheWay, ...]:
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


def _devices(claim: Object, node: str, gpus: Collection[PciAddress]) -> Iterable[str]:
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


def pods_of(claims: Iterable[ClaimInTheWay]) -> tuple[PodInTheWay, ...]:
    """The pods of these claims, each once."""
    return tuple(dict.fromkeys(pod for claim in claims for pod in claim.pods))


def set_cordon(client: KubeClient, node: str, *, cordoned: bool) -> None:
    """Keep new pods away from a node, or let them come again. Raises ApiError."""
    # As kubectl does it: the field is absent where pods may come, and null removes it in a merge patch.
    spec = {"unschedulable": True if cordoned else None}
    client.patch(object_path(NODES, node), {"spec": spec}, "application/merge-patch+json")


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
