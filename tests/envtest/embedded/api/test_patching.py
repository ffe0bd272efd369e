"""Patches do what they do in Kubernetes: strategic lists, JSON patch, server-side apply with its owners."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from envtest.embedded.api.patching import APPLY, JSON_PATCH
from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import CLAIMS, ask, claim

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


KINDS = {
    "configmaps": {"apiVersion": "v1", "kind": "ConfigMap"},
    "deployments": {"apiVersion": "apps/v1", "kind": "Deployment"},
    "resourceclaims": {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"},
}


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        yield running


def applied(server: EmbeddedApiServer, path: str, body: Any, manager: str, *, force: bool = False) -> Any:
    query = f"?fieldManager={manager}" + ("&force=true" if force else "")
    plural, name = path.removesuffix("/status").split("/")[-2:]
    config = {**KINDS[plural], "metadata": {"name": name}, **body}
    return ask(server, "PATCH", path + query, config, content_type=APPLY)


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ({}, 400),
        ([1], 400),
        ([{"op": "add"}], 422),
        ([{"op": "remove", "path": "/data/none"}], 422),
        ([{"op": "add", "path": "/metadata/finalizers/9", "value": "x"}], 422),
        ([{"op": "other", "path": "/data/a"}], 422),
    ],
)
def test_a_json_patch_that_cannot_be_applied_is_refused(
    server: EmbeddedApiServer, operations: object, code: int
) -> None:
    server.create(CONFIG_MAPS, {"metadata": {"name": "m"}, "data": {"a": "1"}})

    assert ask(server, "PATCH", f"{CONFIG_MAPS}/m", operations, content_type=JSON_PATCH).code == code


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


def test_a_port_that_names_no_protocol_is_that_of_tcp(server: EmbeddedApiServer) -> None:
    """The protocol tells ports apart as well, and the schema has a default for it, which is stored."""
    path = "/apis/apps/v1/namespaces/default/deployments/d"
    https, metrics = {"name": "https", "containerPort": 8443}, {"name": "metrics", "containerPort": 9400}

    def deployment(*ports: Any) -> Any:
        labels = {"a": "b"}
        spec = {"containers": [{"name": "c", "image": "i", "ports": [*ports]}]}
        template = {"metadata": {"labels": labels}, "spec": spec}
        return {"spec": {"selector": {"matchLabels": labels}, "template": template}}

    applied(server, path, deployment(https), "one")

    stored = applied(server, path, deployment(https, metrics), "one")

    assert stored.code == 200, stored.body
    (container,) = stored.body["spec"]["template"]["spec"]["containers"]
    assert [one["name"] for one in container["ports"]] == ["https", "metrics"]
