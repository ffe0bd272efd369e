"""A node's labels are those that its Node was last seen with; a change is told of at once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.observe.node_watch import NodeLabels
from driver.kube.paths import NODES
from tests.clusters import EmbeddedApiServer, KubeClient
from tests.gpus import ApiError


def node(pool: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"pool": pool}}}


class Scene:
    """A node in the API server, and its labels as they are known."""

    def __init__(self, server: EmbeddedApiServer, folder: Path) -> None:
        self.server = server
        self.changes = 0
        self.client = KubeClient.connect(server.write_kubeconfig(folder / "kubeconfig"))
        self.labels = NodeLabels(self.client, "a", self.changed)
        server.create(NODES, node("1"))

    def changed(self) -> None:
        self.changes += 1

    def pool(self) -> str:
        return self.labels.current()["pool"]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with EmbeddedApiServer() as server:
        scene = Scene(server, tmp_path)
        yield scene
        scene.client.close()


def test_they_are_read_once_and_a_change_is_told_of_and_only_a_change(scene: Scene) -> None:
    assert scene.pool() == "1"
    scene.server.fail("get", "/nodes/a", code=503)
    assert scene.pool() == "1"
    scene.labels.seen(node("1"))
    assert scene.changes == 0
    scene.labels.seen(node("2"))
    assert (scene.pool(), scene.changes) == ("2", 1)
    scene.labels.seen({"metadata": {"name": "a"}})
    assert (scene.labels.current(), scene.changes) == ({}, 2)


def test_labels_that_could_never_be_read_are_an_error(scene: Scene) -> None:
    scene.server.fail("get", "/nodes/a", code=503)
    with pytest.raises(ApiError):
        scene.pool()
    assert scene.pool() == "1"
