"""A node's labels are read again from time to time, and those before stay while the API server is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.observe.node_labels import NodeLabels
from driver.errors import ApiError
from driver.kube.client import KubeClient
from driver.kube.paths import NODES, object_path
from envtest.embedded.api.server import EmbeddedApiServer

PATH = object_path(NODES, "a")


class Scene:
    """A node, its labels as they are known, and a clock that a test turns."""

    def __init__(self, server: EmbeddedApiServer, folder: Path) -> None:
        self.server = server
        self.now = 100.0
        self.client = KubeClient.connect(server.write_kubeconfig(folder / "kubeconfig"))
        self.labels = NodeLabels(self.client, "a", 60.0, lambda: self.now)
        server.create(
            NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"pool": "1"}}}
        )

    def relabel(self, pool: str) -> None:
        self.client.patch(PATH, {"metadata": {"labels": {"pool": pool}}}, "application/merge-patch+json")

    def pool(self) -> str:
        return self.labels.current()["pool"]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with EmbeddedApiServer() as server:
        scene = Scene(server, tmp_path)
        yield scene
        scene.client.close()


def test_a_change_is_seen_once_the_labels_are_too_old(scene: Scene) -> None:
    assert scene.pool() == "1"
    scene.relabel("2")
    scene.now += 59
    assert scene.pool() == "1"
    scene.now += 2
    assert scene.pool() == "2"


def test_labels_stay_while_the_server_does_not_answer(scene: Scene) -> None:
    assert scene.pool() == "1"
    scene.now += 61
    scene.server.fail("get", "/nodes/a", code=503)
    assert scene.pool() == "1"


def test_labels_that_could_never_be_read_are_an_error(scene: Scene) -> None:
    scene.server.fail("get", "/nodes/a", code=503)
    with pytest.raises(ApiError):
        scene.pool()
    assert scene.pool() == "1"
