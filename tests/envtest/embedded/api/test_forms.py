"""Objects come in the form that a client accepts: whole, as a table, or their metadata only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from envtest.embedded.server import EmbeddedApiServer
from envtest.embedded.shown.forms import Form, NotAcceptable, asked_form
from tests.envtest.embedded.api.api_calls import PODS, ask, pod

PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        running.create(PODS, pod("p"))
        yield running


def accepting(kind: str, version: str = "v1") -> str:
    return f"application/json;as={kind};g=meta.k8s.io;v={version}"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", Form()),
        ("*/*", Form()),
        ("application/yaml, application/json", Form(is_yaml=True)),
        (f"{PROTOBUF},application/json", Form()),
        (accepting("Table"), Form("Table", "v1")),
        ("application/json; as=Table; v=v1beta1; g=meta.k8s.io, application/json", Form("Table", "v1beta1")),
        (f"{accepting('Table')};q=0.5,{accepting('PartialObjectMetadata')}", Form("PartialObjectMetadata")),
        # A table cannot be protobuf, so the next clause counts.
        (
            f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1,{accepting('Table')}",
            Form("Table"),
        ),
        ("application/json;as=Table;g=meta.k8s.io;v=v2,application/json", Form()),
    ],
)
def test_the_first_form_that_is_served_counts(accept: str, form: Form) -> None:
    assert asked_form(accept, is_built_in=True, is_collection=False) == form


@pytest.mark.parametrize("accept", [accepting("Pod"), accepting("Table", "v2"), "application/json;as=Table"])
def test_a_form_that_is_not_served_is_not_acceptable(accept: str) -> None:
    with pytest.raises(NotAcceptable, match="only the following media types are accepted: application/json"):
        asked_form(accept, is_built_in=True, is_collection=False)


def test_metadata_of_an_object_and_of_a_list_come_alone(server: EmbeddedApiServer) -> None:
    one = ask(server, "GET", f"{PODS}/p", accept=accepting("PartialObjectMetadata", "v1beta1")).body
    listed = ask(server, "GET", PODS, accept=accepting("PartialObjectMetadataList")).body

    assert one.keys() == {"kind", "apiVersion", "metadata"}
    assert (one["kind"], one["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1beta1")
    assert (listed["kind"], listed["items"][0]["kind"]) == (
        "PartialObjectMetadataList",
        "PartialObjectMetadata",
    )
    assert "spec" not in listed["items"][0]


@pytest.mark.parametrize(
    ("path", "kind", "text"),
    [
        (PODS, "PartialObjectMetadata", "the requested object is a list (*core.PodList)"),
        (f"{PODS}/p", "PartialObjectMetadataList", "the requested object is not a list (*core.Pod)"),
        (f"{PODS}/none", "PartialObjectMetadata", 'pods "none" not found'),
    ],
)
def test_a_list_is_no_object_and_an_object_no_list(
    server: EmbeddedApiServer, path: str, kind: str, text: str
) -> None:
    answer = ask(server, "GET", path, accept=accepting(kind))

    assert (answer.code, text in answer.body["message"]) == (404 if "not found" in text else 406, True)


def test_a_write_is_answered_in_the_form_too(server: EmbeddedApiServer) -> None:
    answer = ask(server, "POST", PODS, pod("q"), accept=accepting("PartialObjectMetadata"))

    assert (answer.code, answer.body.keys()) == (201, {"kind", "apiVersion", "metadata"})


@pytest.mark.parametrize(
    ("include", "carried"), [("None", None), ("Object", "Pod"), ("", "PartialObjectMetadata")]
)
def test_a_row_carries_what_the_client_asks_for(
    server: EmbeddedApiServer, include: str, carried: str | None
) -> None:
    table = ask(server, "GET", f"{PODS}?includeObject={include}", accept=accepting("Table")).body

    found: Any = table["rows"][0]["object"]
    assert (found and found["kind"]) == carried


def test_a_row_cannot_carry_anything_else(server: EmbeddedApiServer) -> None:
    answer = ask(server, "GET", f"{PODS}?includeObject=Some", accept=accepting("Table"))

    assert answer.code == 400
    assert answer.body["message"] == (
        "Unable to convert to Table as requested: includeObject: Invalid value: "
        "\"Some\": must be 'Metadata', 'Object', 'None', or empty"
    )
