"""lightkube creates, applies, watches and deletes objects, also those of a kind of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lightkube import ApiError, Client, KubeConfig
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Node
from lightkube.types import PatchType

Toy: Any = create_namespaced_resource("clients.example.com", "v1", "Toy", "toys")


@pytest.fixture
def client(kubeconfig: Path) -> Iterator[Client]:
    """The client of the cluster."""
    with Client(KubeConfig.from_file(str(kubeconfig)), field_manager="tests") as made:
        yield made


def test_objects_with_types(client: Client) -> None:
    client.create(ConfigMap(metadata=ObjectMeta(name="settings", namespace="default"), data={"a": "1"}))
    client.patch(ConfigMap, "settings", {"data": {"b": "2"}}, patch_type=PatchType.MERGE)
    found = client.get(ConfigMap, "settings")
    assert found.data == {"a": "1", "b": "2"}
    found.data["a"] = "3"
    client.replace(found)
    assert [one.data for one in client.list(ConfigMap, fields={"metadata.name": "settings"})] == [
        {"a": "3", "b": "2"}
    ]
    client.delete(ConfigMap, "settings")
    with pytest.raises(ApiError) as missing:
        client.get(ConfigMap, "settings")
    assert missing.value.status.reason == "NotFound"
    ready = client.wait(Node, "node-0", for_conditions=["Ready"])
    assert ready.status is not None
    assert ready.status.nodeInfo is not None
    assert len(list(client.list(Node))) == 1


def test_a_kind_of_its_own(client: Client, toys: dict[str, Any]) -> None:
    del toys
    made = client.create(Toy({"metadata": {"name": "robot"}, "spec": {"color": "red"}}), namespace="default")
    assert made["spec"] == {"color": "red", "count": 1}
    changes = client.watch(Toy, resource_version=made.metadata.resourceVersion, server_timeout=5)
    applied = client.apply(
        Toy({"metadata": {"name": "robot", "namespace": "default"}, "spec": {"color": "blue"}}), force=True
    )
    assert applied["spec"] == {"color": "blue", "count": 1}
    client.patch(Toy.Status, "robot", {"status": {"made": 1}}, patch_type=PatchType.MERGE)
    client.delete(Toy, "robot")
    seen = []
    for change, one in changes:
        seen.append((change, one["spec"]["color"], one.get("status")))
        if change == "DELETED":
            break
    assert seen == [
        ("MODIFIED", "blue", None),
        ("MODIFIED", "blue", {"made": 1}),
        ("DELETED", "blue", {"made": 1}),
    ]
