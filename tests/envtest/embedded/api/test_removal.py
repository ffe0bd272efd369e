"""What is deleted waits for who still needs it, and leaves no trace."""

from __future__ import annotations

from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import CLAIMS, ask, claim

NAMESPACES = "/api/v1/namespaces"


def test_a_namespace_that_ends_takes_nothing_new_and_stays_until_it_is_finalized(
    server: EmbeddedApiServer,
) -> None:
    team = f"{NAMESPACES}/team"
    server.create(NAMESPACES, {"metadata": {"name": "team"}})
    server.create(f"{team}/configmaps", {"metadata": {"name": "old"}})

    first, again = ask(server, "DELETE", team), ask(server, "DELETE", team)
    refused = ask(server, "POST", f"{team}/configmaps", {"metadata": {"name": "new"}})
    changed = ask(server, "PUT", f"{team}/configmaps/old", {"metadata": {"name": "old"}, "data": {"a": "b"}})
    replaced = ask(server, "PUT", team, {"metadata": {"name": "team", "labels": {"a": "b"}}})
    finalized = ask(server, "PUT", f"{team}/finalize", {"metadata": {"name": "team"}, "spec": {}})

    assert (first.code, again.code, changed.code, replaced.code, finalized.code) == (200,) * 5
    assert first.body["status"]["phase"] == "Terminating"
    assert first.body == again.body
    assert "deletionGracePeriodSeconds" not in first.body["metadata"]
    assert refused.code == 403
    words = "unable to create new content in namespace team because it is being terminated"
    assert refused.body["message"] == f'configmaps "new" is forbidden: {words}'
    cause = {"reason": "NamespaceTerminating", "field": "metadata.namespace"}
    assert refused.body["details"]["causes"] == [{**cause, "message": "namespace team is being terminated"}]
    assert replaced.body["spec"] == {"finalizers": ["kubernetes"]}
    assert ask(server, "GET", team).code == 404


def test_a_claim_that_loses_its_devices_loses_what_was_said_of_them(server: EmbeddedApiServer) -> None:
    stored = server.create(CLAIMS, claim("c"))
    device = {"driver": "a.example.com", "pool": "p", "device": "d"}
    allocation = {"devices": {"results": [{"request": "gpu", **device}]}}
    status = {"allocation": allocation, "devices": [{**device, "conditions": []}]}
    stored = server.replace(f"{CLAIMS}/c/status", {**stored, "status": status})

    freed = server.replace(f"{CLAIMS}/c/status", {**stored, "status": {"devices": status["devices"]}})

    assert freed["status"] == {}
