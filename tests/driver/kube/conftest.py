"""An API server and a client of it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.kube.client import KubeClient
from envtest.embedded.server import EmbeddedApiServer


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        yield running


@pytest.fixture
def client(server: EmbeddedApiServer, tmp_path: Path) -> Iterator[KubeClient]:
    connected = KubeClient.connect(server.write_kubeconfig(tmp_path / "kubeconfig"))
    yield connected
    connected.close()
