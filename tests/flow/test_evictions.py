"""The Eviction API keeps to PodDisruptionBudgets, which gpuctl heal meets, in Kubernetes' words."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.client import paths
from envtest.client.errors import ApiRefused
from envtest.client.waiting import wait_for, wait_gone
from envtest.cluster import Cluster
from tests.flow.claims import gpu_pod, make_template, start


def evict(cluster: Cluster, namespace: str, pod: str) -> None:
    metadata = {"name": pod, "namespace": namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    cluster.api.request("POST", f"{paths.pod(pod, namespace)}/eviction", body)


def test_a_pod_is_evicted_when_its_budget_allows_it(cluster: Cluster, namespace: str) -> None:
    make_template(cluster, namespace)
    labelled = gpu_pod("train")
    labelled["metadata"]["labels"] = {"app": "train"}
    start(cluster, namespace, labelled)
    budget = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/train"
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "train"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}},
    }
    cluster.api.create(body, namespace)

    def counted(stored: dict[str, Any]) -> bool:
        return bool(stored["status"].get("currentHealthy"))

    status = wait_for(cluster.api, budget, counted)["status"]
    assert (status["desiredHealthy"], status["expectedPods"], status["disruptionsAllowed"]) == (1, 1, 0)
    assert status["conditions"][0]["reason"] == "InsufficientPods"
    with pytest.raises(
        ApiRefused, match="Cannot evict pod as it would violate the pod's disruption"
    ) as caught:
        evict(cluster, namespace, "train")
    assert (caught.value.status, caught.value.reason) == (429, "TooManyRequests")

    cluster.api.patch(budget, {"spec": {"minAvailable": 0}})
    wait_for(cluster.api, budget, lambda stored: bool(stored["status"]["disruptionsAllowed"] == 1))
    evict(cluster, namespace, "train")

    wait_gone(cluster.api, paths.pod("train", namespace))
