"""Lists which devices of a pool claims were given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from driver.kube.client import KubeClient

RESOURCE_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"

_PAGE_SIZE = 500


def allocated_devices(client: KubeClient, *, driver: str, pool: str) -> frozenset[str]:
    """The names of the pool's devices that are allocated, by the claims of all namespaces as they are now.

    Admin access is left out: it takes no device from anybody. Raises ApiError.
    """
    return given_devices(_claims(client), driver=driver, pool=pool)


def given_devices(claims: Iterable[dict[str, Any]], *, driver: str, pool: str) -> frozenset[str]:
    """The names of the pool's devices that these claims were given; admin access is left out."""
    return frozenset(
        str(result.get("device"))
        for claim in claims
        for result in _results(claim)
        if (result.get("driver"), result.get("pool")) == (driver, pool)
        and result.get("adminAccess") is not True
    )


def _claims(client: KubeClient) -> Iterator[dict[str, Any]]:
    params = {"limit": str(_PAGE_SIZE)}
    while True:
        page = client.get(RESOURCE_CLAIMS, params)
        yield from page.get("items") or []
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return
        params["continue"] = token


def _results(claim: dict[str, Any]) -> list[dict[str, Any]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []
