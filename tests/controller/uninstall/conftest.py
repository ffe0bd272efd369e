"""A cluster with the driver's DaemonSets on two nodes, played on the embedded API server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import EmbeddedApiServer
from tests.controller.uninstall.played_cluster import PlayedCluster


@pytest.fixture
def played(tmp_path: Path) -> Iterator[PlayedCluster]:
    with EmbeddedApiServer() as server:
        played = PlayedCluster(server, tmp_path)
        yield played
        played.client.close()
