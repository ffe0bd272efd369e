"""The official Python client: its typed lists of all kinds, its calls, its watch and its dynamic client."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, dynamic, watch

from envtest.embedded.api.resources import RESOURCES, Resource
from envtest.embedded.cluster import EmbeddedCluster
from tools.testbed.kubectl.running import manifests


@pytest.fixture
def api(kubeconfig: Path) -> Any:
    """The client of the cluster."""
    return config.new_client_from_config(str(kubeconfig))


def test_all_kinds_are_listed_with_their_types(api: Any, cluster: EmbeddedCluster) -> None:
    create = dynamic.DynamicClient(api)
    for manifest in manifests():
        resource = create.resources.get(api_version=manifest["apiVersion"], kind=manifest["kind"])
        created = resource.create(body=manifest, namespace="default" if resource.namespaced else None)
        assert created.metadata.uid

    for resource in RESOURCES:
        # In this form an event of the core group has no eventTime, and the client refuses it.
        if "list" not in resource.verbs or resource.group == "events.k8s.io":
            continue
        listed = _list(api, resource)()
        stored = cluster.api_server.objects(resource.collection[1], resource.collection[0])
        assert {item.metadata.name for item in listed.items} == {
            item["metadata"]["name"] for item in stored
        }, resource


def _list(api: Any, resource: Resource) -> Any:
    """The method of the client that lists a resource in all namespaces."""
    words = resource.group.removesuffix(".k8s.io").split(".") if resource.group else ["core"]
    group = getattr(client, "".join(word.capitalize() for word in words) + "V1Api")(api)
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", resource.kind).lower()
    return getattr(group, f"list_{kind}_for_all_namespaces" if resource.namespaced else f"list_{kind}")


def test_an_object_is_created_changed_watched_and_deleted(api: Any) -> None:
    core = client.CoreV1Api(api)
    metadata = client.V1ObjectMeta(name="settings", labels={"app": "web"})
    created: Any = core.create_namespaced_config_map(
        "default", client.V1ConfigMap(metadata=metadata, data={"a": "1"})
    )
    version = created.metadata.resource_version
    core.patch_namespaced_config_map("settings", "default", {"data": {"b": "2"}})
    replaced: Any = core.read_namespaced_config_map("settings", "default")
    replaced.data["c"] = "3"
    core.replace_namespaced_config_map("settings", "default", replaced)
    with pytest.raises(client.ApiException) as conflict:
        core.replace_namespaced_config_map("settings", "default", created)
    assert conflict.value.status == 409
    core.delete_namespaced_config_map("settings", "default", propagation_policy="Foreground")
    seen = []
    stream = watch.Watch()
    follow = {"resource_version": version, "label_selector": "app=web", "timeout_seconds": 5}
    for event in stream.stream(core.list_namespaced_config_map, "default", **follow):
        seen.append((event["type"], sorted(event["object"].data)))
        if event["type"] == "DELETED":
            stream.stop()
    assert seen[0] == ("MODIFIED", ["a", "b"])
    assert seen[1] == ("MODIFIED", ["a", "b", "c"])
    assert seen[-1] == ("DELETED", ["a", "b", "c"])


def test_the_dynamic_client_knows_a_kind_of_a_definition(api: Any, toys: dict[str, Any]) -> None:
    found = dynamic.DynamicClient(api).resources.get(api_version="clients.example.com/v1", kind="Toy")
    body = {"apiVersion": "clients.example.com/v1", "kind": "Toy", "metadata": {"name": "robot"}}
    with pytest.raises(dynamic.exceptions.UnprocessibleEntityError):
        found.create(body=body | {"spec": {"color": "green"}}, namespace="default")
    created = found.create(body=body | {"spec": {"color": "red"}}, namespace="default")
    assert created.spec.count == 1
    applied = found.server_side_apply(
        body=body | {"spec": {"color": "blue"}}, namespace="default", field_manager="a", force_conflicts=True
    )
    assert (applied.spec.color, applied.spec.count) == ("blue", 1)
    found.status.patch(
        body={"status": {"made": 1}},
        name="robot",
        namespace="default",
        content_type="application/merge-patch+json",
    )
    custom = client.CustomObjectsApi(api)
    one: Any = custom.get_namespaced_custom_object("clients.example.com", "v1", "default", "toys", "robot")
    assert one["status"] == {"made": 1}
    custom.delete_namespaced_custom_object("clients.example.com", "v1", "default", "toys", "robot")
    assert found.get(namespace="default").items == []
    assert client.ApiextensionsV1Api(api).read_custom_resource_definition(toys["metadata"]["name"]).spec.group


def test_the_version_is_told(api: Any) -> None:
    assert client.VersionApi(api).get_code().git_version.startswith("v1.37")
