"""Who uses the GPUs that are to be changed, claims and their pods, and how a node is emptied of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from driver.devices.names import DRIVER_NAME, pool_name
from driver.kinds.registry import KINDS
from driver.kube.client import KubeClient
from driver.kube.errors import Conflict, NotFound, TooManyRequests
from driver.kube.paths import NODES, object_path
from driver.nvml.pci_address import PciAddress
from gpuctl.cli.cluster import ClusterView
from gpuctl.cli.output import as_data

Object = Mapping[str, Any]


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
    def path(self) -> str:
        """Its path in the API."""
        namespace, name = quote(self.namespace, safe=""), quote(self.name, safe="")
        return f"/api/v1/namespaces/{namespace}/pods/{name}"

    @property
    def of_daemon_set(self) -> bool:
        """Whether a DaemonSet starts such a pod again in spite of a cordon."""
        return (self.controller or "").startswith("DaemonSet/")

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ClaimInTheWay:
    """A claim that has devices of the GPUs; admin access counts, since it uses them too.

    ``others`` are users that are no pods.
    """

    namespace: str
    name: str
    devices: tuple[str, ...]
    pods: tuple[PodInTheWay, ...]
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def as_data(self) -> dict[str, Any]:
        """All of it, for scripts."""
        data: dict[str, Any] = as_data(self)
        return data


def claims_in_the_way(
    view: ClusterView, node: str, gpus: Collection[PciAddress]
) -> tuple[ClaimInTheWay, ...]:
    """The claims that have a device of these GPUs of the node; raises ApiError."""
    found = []
    for claim in view.claims():
        devices = tuple(_devices(claim, node, gpus))
        if not devices:
            continue
        metadata = claim["metadata"]
        users = (claim.get("status") or {}).get("reservedFor") or ()
        pods = [pod for user in users if (pod := _pod(view, metadata["namespace"], user)) is not None]
        others = [f"{user.get('resource')}/{user.get('name')}" for user in users if not _is_pod(user)]
        found.append(
            ClaimInTheWay(metadata["namespace"], metadata["name"], devices, tuple(pods), tuple(others))
        )
    return tuple(found)


def _devices(claim: Object, node: str, gpus: Collection[PciAddress]) -> Iterable[str]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for result in allocation.get("devices", {}).get("results") or ():
        if (result["driver"], result["pool"]) == (DRIVER_NAME, pool_name(node)):
            name = KINDS.parse(result["device"])
            if name is not None and any(region.pci in gpus for region in name.regions):
                yield str(result["device"])


def _is_pod(user: Object) -> bool:
    return user.get("resource") == "pods" and not user.get("apiGroup")


def _pod(view: ClusterView, namespace: str, user: Object) -> PodInTheWay | None:
    """The pod that a claim is reserved for, None for no pod and one that is not there any more."""
    if not _is_pod(user):
        return None
    found = PodInTheWay(namespace, str(user["name"]), str(user.get("uid")), None, ends=False)
    pod = view.found(found.path)
    if pod is None or pod["metadata"]["uid"] != user.get("uid"):
        return None
    metadata = pod["metadata"]
    controller = next(
        (
            f"{one['kind']}/{one['name']}"
            for one in metadata.get("ownerReferences") or ()
            if one.get("controller")
        ),
        None,
    )
    return PodInTheWay(namespace, found.name, found.uid, controller, ends="deletionTimestamp" in metadata)


def pods_of(claims: Iterable[ClaimInTheWay]) -> tuple[PodInTheWay, ...]:
    """The pods of these claims, each once."""
    return tuple(dict.fromkeys(pod for claim in claims for pod in claim.pods))


class NodeChanges:
    """What can be done to one node and its pods. Raises ApiError."""

    def __init__(self, client: KubeClient, node: str) -> None:
        self._client = client
        self._path = object_path(NODES, node)

    def cordon(self) -> None:
        """Let no new pods come to the node."""
        self._patch(unschedulable=True)

    def uncordon(self) -> None:
        """Let pods come to the node again."""
        self._patch(unschedulable=False)

    def evict(self, pod: PodInTheWay) -> str | None:
        """Ask for the end of a pod through the Eviction API, which keeps to PodDisruptionBudgets.

        The answer is why it cannot end now (another try may succeed), None when it ends or is gone.
        """
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        try:
            self._client.create(f"{pod.path}/eviction", eviction)
        except TooManyRequests as error:
            return error.what
        except (NotFound, Conflict):
            pass  # it is gone, or another pod has its name now
        return None

    def _patch(self, *, unschedulable: bool) -> None:
        # As kubectl does it: the field is absent where pods may come.
        spec = {"unschedulable": True if unschedulable else None}
        self._client.patch(self._path, {"spec": spec}, "application/merge-patch+json")
