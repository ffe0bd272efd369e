"""The embedded API server answers what kubectl asks beside objects, and refuses in Kubernetes' words."""

from __future__ import annotations

import pytest

from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import (
    PODS,
    ask,
    pod,
)

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def cells(server: EmbeddedApiServer, path: str) -> list[str]:
    """The first row without its age, which is last in the narrow columns."""
    table = ask(server, "GET", path, accept=TABLE).body
    narrow = [index for index, one in enumerate(table["columnDefinitions"]) if not one["priority"]]
    return [str(table["rows"][0]["cells"][index]) for index in narrow][:-1]


def test_discovery_names_the_resources(server: EmbeddedApiServer) -> None:
    groups = [group["name"] for group in ask(server, "GET", "/apis").body["groups"]]
    core = {one["name"]: one for one in ask(server, "GET", "/api/v1").body["resources"]}

    assert {"coordination.k8s.io", "policy", "resource.k8s.io"} <= set(groups)
    assert groups == sorted(groups)
    assert {"pods", "pods/binding", "pods/eviction", "pods/status", "nodes"} <= set(core)
    assert core["pods"]["shortNames"] == ["po"]


def test_openapi_says_that_fields_are_validated_here(server: EmbeddedApiServer) -> None:
    paths = ask(server, "GET", "/openapi/v3/api/v1").body["paths"]

    named = [parameter["name"] for parameter in paths["/pods/{name}"]["patch"]["parameters"]]
    assert named == ["dryRun", "fieldValidation"]
    assert "api/v1" in ask(server, "GET", "/openapi/v3").body["paths"]


def test_who_looks_for_a_kind_that_nobody_describes_finds_that_there_is_none(
    server: EmbeddedApiServer,
) -> None:
    kind = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    older = ask(server, "GET", "/openapi/v2", accept=kind)

    assert (older.code, older.headers["content-length"]) == (200, "0")


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        (
            {
                "containerStatuses": [{"name": "c", "ready": True, "state": {"running": {}}}],
                "phase": "Running",
            },
            "Running",
        ),
        ({"containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "Why"}}}]}, "Why"),
        ({"containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 3}}}]}, "ExitCode:3"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
    ],
)
def test_the_status_of_a_pod_is_in_the_words_of_kubectl(
    server: EmbeddedApiServer, status: dict[str, object], shown: str
) -> None:
    stored = server.create(PODS, pod("p"))
    server.replace(f"{PODS}/p/status", {**stored, "status": status})

    assert cells(server, PODS)[2] == shown


@pytest.mark.parametrize(
    ("include", "carried"), [("None", None), ("Object", "Pod"), ("", "PartialObjectMetadata")]
)
def test_a_row_carries_what_the_client_asks_for(
    server: EmbeddedApiServer, include: str, carried: str | None
) -> None:
    server.create(PODS, pod("p"))
    found = ask(server, "GET", f"{PODS}?includeObject={include}", accept=TABLE).body["rows"][0]["object"]

    assert (found and found["kind"]) == carried
