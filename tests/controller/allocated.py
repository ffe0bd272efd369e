"""Claims in an API server that were given devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envtest.embedded.server import EmbeddedApiServer

POOL = "node-a/gpu.nvidia.com"


def allocate(server: EmbeddedApiServer, claim: str, *devices: str, pool: str = POOL, **result: Any) -> None:
    """Make a claim to which the scheduler has given these devices."""
    claims = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
    requests = [
        {"name": f"r{index}", "exactly": {"deviceClassName": "gpu", **_admin(result)}}
        for index in range(len(devices))
    ]
    stored = server.create(claims, {"metadata": {"name": claim}, "spec": {"devices": {"requests": requests}}})
    results = [
        {"request": f"r{index}", "driver": "gpu.nvidia.com", "pool": pool, "device": device, **result}
        for index, device in enumerate(devices)
    ]
    server.replace(
        f"{claims}/{claim}/status", {**stored, "status": {"allocation": {"devices": {"results": results}}}}
    )


def _admin(result: dict[str, Any]) -> dict[str, Any]:
    return {"adminAccess": True} if result.get("adminAccess") else {}


def end_claim(server: EmbeddedApiServer, claim: str) -> None:
    """Take the claim away."""
    server.delete(f"/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/{claim}")
