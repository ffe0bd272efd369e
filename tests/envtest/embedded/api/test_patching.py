"""Drivers share the status of a claim, and devices that it loses take theirs along."""

from typing import Any

from envtest.embedded.api.patching import APPLY
from tests.clusters import EmbeddedApiServer, Object
from tests.envtest.embedded.api.api_calls import CLAIMS, ask, claim


def applied(server: EmbeddedApiServer, status: Object, manager: str) -> Any:
    config = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
    path = f"{CLAIMS}/c/status?fieldManager={manager}"
    return ask(server, "PATCH", path, {**config, "status": status}, content_type=APPLY)


def test_drivers_share_the_status_of_a_claim_by_device(server: EmbeddedApiServer) -> None:
    stored = server.create(CLAIMS, claim("c"))
    result = {"request": "gpu", "driver": "a.example.com", "pool": "p"}
    results = [{**result, "device": "x"}, {**result, "device": "y"}]
    server.replace(
        f"{CLAIMS}/c/status", {**stored, "status": {"allocation": {"devices": {"results": results}}}}
    )

    def status_of(device: str) -> Object:
        mine = {"driver": "a.example.com", "pool": "p", "device": device, "data": {"from": device}}
        return {"devices": [mine]}

    one = applied(server, status_of("x"), "driver-x")
    two = applied(server, status_of("y"), "driver-y")
    gone = applied(server, {}, "driver-x")

    assert one.code == 200, one.body
    assert [one["device"] for one in two.body["status"]["devices"]] == ["x", "y"]
    assert [one["device"] for one in gone.body["status"]["devices"]] == ["y"]
    assert gone.body["status"]["allocation"] == {"devices": {"results": results}}


def test_a_claim_that_loses_its_devices_loses_what_was_said_of_them(server: EmbeddedApiServer) -> None:
    stored = server.create(CLAIMS, claim("c"))
    device = {"driver": "a.example.com", "pool": "p", "device": "d"}
    allocation = {"devices": {"results": [{"request": "gpu", **device}]}}
    status = {"allocation": allocation, "devices": [{**device, "conditions": []}]}
    stored = server.replace(f"{CLAIMS}/c/status", {**stored, "status": status})

    freed = server.replace(f"{CLAIMS}/c/status", {**stored, "status": {"devices": status["devices"]}})

    assert freed["status"] == {}
