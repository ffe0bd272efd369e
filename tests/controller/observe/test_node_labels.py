"""A node's labels are those that its Node was last seen with; a change is told of at once."""

import pytest

from controller.observe.node_watch import NodeLabels
from driver.kube.paths import NODES
from tests.clusters import EmbeddedApiServer, KubeClient
from tests.gpus import ApiError

Object = dict[str, object]


def node(**labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": labels}}


def test_they_are_read_once_and_a_change_is_told_of_and_only_a_change(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    server.create(NODES, node(pool="1"))
    told: list[Object] = []
    labels = NodeLabels(client, "a", lambda: told.append({**labels.current()}))
    assert labels.current()["pool"] == "1"
    server.fail("get", "/nodes/a", code=503)
    assert labels.current()["pool"] == "1"
    for one in (node(pool="1"), node(pool="2"), {"metadata": {"name": "a"}}):
        labels.seen(one)
    assert told == [{"pool": "2"}, {}]


def test_labels_that_could_never_be_read_are_an_error(server: EmbeddedApiServer, client: KubeClient) -> None:
    server.create(NODES, node(pool="1"))
    labels = NodeLabels(client, "a", lambda: None)
    server.fail("get", "/nodes/a", code=503)
    with pytest.raises(ApiError):
        labels.current()
    assert labels.current()["pool"] == "1"
