"""Changes that repartitioning makes to a cluster: closing and opening a node, and evicting pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.kube.errors import Conflict, NotFound, TooManyRequests
from driver.kube.paths import NODES, object_path

if TYPE_CHECKING:
    from driver.kube.client import KubeClient
    from gpuctl.repartition.in_the_way import PodInTheWay


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
