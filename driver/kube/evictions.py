"""Evicts pods by the Eviction API, which keeps to PodDisruptionBudgets and to the pods' grace periods."""

from __future__ import annotations

from driver.kube.client import KubeClient
from driver.kube.paths import pod_path


def evict_pod(client: KubeClient, namespace: str, name: str, uid: str) -> None:
    """Evict the pod of this UID.

    Raises TooManyRequests while a budget forbids it, NotFound if the pod is gone, Conflict if another pod has
    its name, and other errors of ``driver.kube.errors``.
    """
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        # With another UID the API server refuses (409): a new pod may have the name by now.
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    client.create(f"{pod_path(namespace, name)}/eviction", eviction)
