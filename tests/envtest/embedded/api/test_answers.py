"""The embedded API server answers what kubectl asks beside objects, and refuses in Kubernetes' words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import (
    CLAIMS,
    PODS,
    SLICES,
    ask,
    claim,
    pod,
    resource_slice,
)

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        yield running


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


def test_health_and_version_are_told(server: EmbeddedApiServer) -> None:
    assert [ask(server, "GET", path).code for path in ("/healthz", "/readyz", "/livez")] == [200, 200, 200]
    assert ask(server, "GET", "/version").body["minor"] == "37"


def test_tables_have_the_columns_of_a_real_server(server: EmbeddedApiServer) -> None:
    server.create(PODS, pod("p"))
    server.create(CLAIMS, claim("c"))
    server.create(SLICES, resource_slice("s"))
    server.create("/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {"unschedulable": True}})

    assert cells(server, PODS) == ["p", "0/1", "Pending", "0"]
    assert cells(server, CLAIMS) == ["c", "pending"]
    assert cells(server, SLICES) == ["s", "n", "a.example.com", "p"]
    assert cells(server, "/api/v1/nodes/n")[:3] == ["n", "Unknown,SchedulingDisabled", "<none>"]


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


def test_unknown_fields_are_refused_warned_of_or_dropped_as_the_client_asks(
    server: EmbeddedApiServer,
) -> None:
    def created(name: str, mode: str) -> tuple[int, str]:
        answer = ask(server, "POST", f"{PODS}?fieldValidation={mode}", pod(name, colour="red"))
        return answer.code, answer.headers.get("warning", "")

    assert created("a", "Strict")[0] == 400
    assert created("b", "Warn") == (201, '299 - "unknown field \\"spec.colour\\""')
    assert created("c", "Ignore") == (201, "")
    assert "colour" not in ask(server, "GET", f"{PODS}/b").body["spec"]


def test_an_invalid_object_is_answered_with_each_field(server: EmbeddedApiServer) -> None:
    answer = ask(server, "POST", SLICES, resource_slice("s", nodeName="", driver="a_b"))

    details = answer.body["details"]
    assert answer.code == 422
    assert answer.body["message"].startswith('ResourceSlice.resource.k8s.io "s" is invalid: [')
    assert (details["kind"], details["name"]) == ("ResourceSlice", "s")
    assert [(cause["field"], cause["reason"]) for cause in details["causes"]] == [
        ("spec.driver", "FieldValueInvalid"),
        ("spec.nodeName", "FieldValueInvalid"),
        ("spec", "FieldValueRequired"),
    ]
