"""What is deleted waits for who still needs it, and leaves no trace."""

from __future__ import annotations

from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import CLAIMS, claim


def test_a_claim_that_loses_its_devices_loses_what_was_said_of_them(server: EmbeddedApiServer) -> None:
    stored = server.create(CLAIMS, claim("c"))
    device = {"driver": "a.example.com", "pool": "p", "device": "d"}
    allocation = {"devices": {"results": [{"request": "gpu", **device}]}}
    status = {"allocation": allocation, "devices": [{**device, "conditions": []}]}
    stored = server.replace(f"{CLAIMS}/c/status", {**stored, "status": status})

    freed = server.replace(f"{CLAIMS}/c/status", {**stored, "status": {"devices": status["devices"]}})

    assert freed["status"] == {}
