"""Claims in an API server that were given devices, each with a pod on node-a that uses it."""

from typing import Any

from tests.clusters import EmbeddedApiServer

POOL = "node-a/gpu.nvidia.com"
PODS = "/api/v1/namespaces/team/pods"


def allocate(
    server: EmbeddedApiServer,
    claim: str,
    *devices: str,
    pool: str = POOL,
    node: str = "node-a",
    **result: Any,
) -> None:
    """Make a claim to which the scheduler has given these devices, and bind its pod."""
    claims = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
    exactly = {"deviceClassName": "gpu"} | {key: result[key] for key in result if key == "adminAccess"}
    requests = [{"name": f"r{index}", "exactly": exactly} for index in range(len(devices))]
    stored = server.create(claims, {"metadata": {"name": claim}, "spec": {"devices": {"requests": requests}}})
    results = [
        {"request": f"r{index}", "driver": "gpu.nvidia.com", "pool": pool, "device": device, **result}
        for index, device in enumerate(devices)
    ]
    server.replace(
        f"{claims}/{claim}/status", {**stored, "status": {"allocation": {"devices": {"results": results}}}}
    )
    bind_pod(server, claim, claim, nodeName=node)


def bind_pod(server: EmbeddedApiServer, pod: str, claim: str, **spec: Any) -> None:
    """Make a pod that uses the claim, on node-a unless the fields ``spec`` say otherwise."""
    whole = {
        "nodeName": "node-a",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "train"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
        **spec,
    }
    server.create(PODS, {"metadata": {"name": pod, "namespace": "team"}, "spec": whole})


def end_claim(server: EmbeddedApiServer, claim: str) -> None:
    """Take the claim away, with its pod."""
    server.delete(f"{PODS}/{claim}")
    server.delete(f"/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/{claim}")
