"""Finds the devices of a pool that are allocated to claims.

Claims cannot be selected by node, and a cluster can have tens of thousands. Pods can: so the pods of the node
are read, and then their claims. The scheduler writes the allocation of a claim before it binds the pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from driver.kube.client import PATIENT_SECONDS, KubeClient
from driver.kube.errors import NotFound
from driver.kube.paths import claim_path
from kubernetes_rules.pod_claims import claim_entries, extended_claim

_PODS = "/api/v1/pods"

_PAGE_SIZE = 500

_Claim = tuple[str, str]
"""Namespace and name."""


def allocated_devices(client: KubeClient, *, node: str, driver: str, pool: str) -> frozenset[str]:
    """The names of the pool's devices that are allocated to claims of the node's pods; raises ApiError."""
    claims = claims_of_node(client, node)
    return frozenset().union(*(_allocated_to(client, claim, driver, pool) for claim in sorted(claims)))


def claims_of_node(client: KubeClient, node: str) -> frozenset[tuple[str, str]]:
    """The claims, by namespace and name, that the pods of a node use; raises ApiError."""
    return frozenset().union(*map(_claims_of, _pods(client, node)))


def _allocated_to(client: KubeClient, claim: _Claim, driver: str, pool: str) -> frozenset[str]:
    """The names of the pool's devices that are allocated to the claim now; raises ApiError."""
    try:
        status = client.get(claim_path(*claim), timeout_seconds=PATIENT_SECONDS).get("status") or {}
    except NotFound:
        return frozenset()
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    # Admin access is left out: it does not keep the device from others.
    return frozenset(
        str(result.get("device"))
        for result in results
        if (result.get("driver"), result.get("pool")) == (driver, pool)
        and result.get("adminAccess") is not True
    )


def _pods(client: KubeClient, node: str) -> Iterator[dict[str, Any]]:
    params = {"fieldSelector": f"spec.nodeName={node}", "limit": str(_PAGE_SIZE)}
    while True:
        page = client.get(_PODS, params, timeout_seconds=PATIENT_SECONDS)
        yield from page.get("items") or []
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return
        params["continue"] = token


def _claims_of(pod: Mapping[str, Any]) -> frozenset[_Claim]:
    """The claims that a pod uses; none once it has ended, when Kubernetes releases them."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return frozenset()
    names = (*(entry.claim for entry in claim_entries(pod)), extended_claim(pod))
    return frozenset((pod["metadata"]["namespace"], name) for name in names if name)
