"""Patches do what they do in Kubernetes: strategic lists, JSON patch, server-side apply with its owners."""

from __future__ import annotations

from typing import Any

from envtest.embedded.api.patching import APPLY
from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import CLAIMS, ask, claim

KINDS = {
    "configmaps": {"apiVersion": "v1", "kind": "ConfigMap"},
    "deployments": {"apiVersion": "apps/v1", "kind": "Deployment"},
    "resourceclaims": {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"},
}


def applied(server: EmbeddedApiServer, path: str, body: Any, manager: str, *, force: bool = False) -> Any:
    query = f"?fieldManager={manager}" + ("&force=true" if force else "")
    plural, name = path.removesuffix("/status").split("/")[-2:]
    config = {**KINDS[plural], "metadata": {"name": name}, **body}
    return ask(server, "PATCH", path + query, config, content_type=APPLY)


def test_drivers_share_the_status_of_a_claim_by_device(server: EmbeddedApiServer) -> None:
    stored = server.create(CLAIMS, claim("c"))
    result = {"request": "gpu", "driver": "a.example.com", "pool": "p"}
    results = [{**result, "device": "x"}, {**result, "device": "y"}]
    server.replace(
        f"{CLAIMS}/c/status", {**stored, "status": {"allocation": {"devices": {"results": results}}}}
    )

    def status_of(device: str) -> dict[str, Any]:
        mine = {"driver": "a.example.com", "pool": "p", "device": device, "data": {"from": device}}
        return {"status": {"devices": [mine]}}

    one = applied(server, f"{CLAIMS}/c/status", status_of("x"), "driver-x")
    two = applied(server, f"{CLAIMS}/c/status", status_of("y"), "driver-y")
    gone = applied(server, f"{CLAIMS}/c/status", {"status": {}}, "driver-x")

    assert one.code == 200, one.body
    assert [one["device"] for one in two.body["status"]["devices"]] == ["x", "y"]
    assert [one["device"] for one in gone.body["status"]["devices"]] == ["y"]
    assert gone.body["status"]["allocation"] == {"devices": {"results": results}}
