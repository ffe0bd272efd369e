"""A page over an embedded API server with one node of eight H100."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import EmbeddedApiServer
from tests.gpuctl.web.pages import Page, add_class, page_of, publish


@pytest.fixture(autouse=True)
def _read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test looks again at once, and sees what it has just changed."""
    monkeypatch.setattr("gpuctl.web.reading.LEAST_AGE_SECONDS", 0.0)
    monkeypatch.setattr("gpuctl.web.reading.AGE_FACTOR", 0)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """The page of a cluster with a node and a class."""
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
        with page_of(api_server, tmp_path_factory.mktemp("still") / "config", ("page.example",)) as served:
            yield served
