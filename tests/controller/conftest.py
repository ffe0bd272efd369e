"""An API server with one node and one namespace, and a publisher for it whose threads end with the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import EmbeddedApiServer, KubeClient
from tests.controller.published import Published
from tests.gpus import Guard


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        running.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}})
        admin = {"resource.kubernetes.io/admin-access": "true"}
        running.create("/api/v1/namespaces", {"metadata": {"name": "team", "labels": admin}})
        yield running


@pytest.fixture
def client(server: EmbeddedApiServer, tmp_path: Path) -> KubeClient:
    return KubeClient.connect(server.write_kubeconfig(tmp_path / "kubeconfig"))


@pytest.fixture
def guard() -> Iterator[Guard]:
    """What gives the calls of a look their time."""
    made = Guard(2.0)
    yield made
    made.close()


@pytest.fixture
def published(server: EmbeddedApiServer, tmp_path: Path) -> Iterator[Published]:
    one = Published(server, tmp_path)
    yield one
    one.end()


@pytest.fixture
def again(server: EmbeddedApiServer, tmp_path: Path) -> Iterator[Published]:
    """The publisher of the next controller, not started yet."""
    one = Published(server, tmp_path)
    yield one
    one.end()
