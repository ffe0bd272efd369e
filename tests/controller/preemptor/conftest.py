"""A scene for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import EmbeddedApiServer
from tests.controller.preemptor.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with EmbeddedApiServer() as server:
        found = Scene(server, tmp_path)
        yield found
        found.client.close()
