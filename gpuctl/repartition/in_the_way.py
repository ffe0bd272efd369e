"""Finds who uses the GPUs of a node that are to be repartitioned: claims, and the pods that have them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from driver.devices.names import DRIVER_NAME, pool_name
from driver.kinds.registry import KINDS
from gpuctl.cli.documents import as_data

if TYPE_CHECKING:
    from driver.nvml.pci_address import PciAddress
    from gpuctl.cli.cluster_view import ClusterView

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodInTheWay:
    """A pod that uses a GPU. ``controller`` is who made it (``ReplicaSet/web``), None for nobody.

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
        """Whether a cordon does not keep its like away."""
        return (self.controller or "").startswith("DaemonSet/")

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ClaimInTheWay:
    """A claim that has devices of the GPUs; admin access counts, since who looks on uses them too.

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
