"""Objects come in the form that a client accepts: whole, as a table, or their metadata only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from envtest.embedded.server import EmbeddedApiServer
from envtest.embedded.shown.forms import Form, asked_form
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
        (f"{PROTOBUF},application/json", Form()),
        (accepting("Table"), Form("Table")),
        (f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1,{accepting('Table')}", Form("Table")),
        (f"{accepting('Table', 'v2')},application/json", Form()),
        (accepting("Pod"), Form()),
        (PROTOBUF, Form()),
    ],
)
def test_the_first_form_that_is_served_counts(accept: str, form: Form) -> None:
    assert asked_form(accept) == form


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
