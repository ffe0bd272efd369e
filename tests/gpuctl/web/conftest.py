"""A page over an embedded API server with one node of eight H100."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from envtest.embedded.server import EmbeddedApiServer
from tests.gpuctl.web.pages import Page, add_class, page_of, publish


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """The page, up to date with a node and a class."""
    with EmbeddedApiServer() as api_server:
        publish(api_server)
        add_class(api_server)
        with page_of(api_server, tmp_path / "config") as served:
            yield served


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The same for tests that change nothing, one for all of a file."""
    with EmbeddedApiServer() as api_server:
        publish(api_server)
        with page_of(api_server, tmp_path_factory.mktemp("still") / "config") as served:
            yield served
