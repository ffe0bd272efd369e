"""Objects come in the form that a client accepts: whole, as a table, or their metadata only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import PODS, ask, pod


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        running.create(PODS, pod("p"))
        yield running


def accepting(kind: str, version: str = "v1") -> str:
    return f"application/json;as={kind};g=meta.k8s.io;v={version}"


@pytest.mark.parametrize(
    ("include", "carried"), [("None", None), ("Object", "Pod"), ("", "PartialObjectMetadata")]
)
def test_a_row_carries_what_the_client_asks_for(
    server: EmbeddedApiServer, include: str, carried: str | None
) -> None:
    table = ask(server, "GET", f"{PODS}?includeObject={include}", accept=accepting("Table")).body

    found: Any = table["rows"][0]["object"]
    assert (found and found["kind"]) == carried
