"""The official Python client: its typed lists of all kinds, its calls, its watch and its dynamic client."""

import re
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, dynamic, watch

from envtest.embedded.server import RESOURCES
from tests.clusters import EmbeddedCluster
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
        if "list" not in resource.verbs:
            continue
        listed = _list(api, resource)()
        stored = cluster.api_server.objects(resource.collection[1], resource.collection[0])
        assert {item.metadata.name for item in listed.items} == {
            item["metadata"]["name"] for item in stored
        }, resource


def _list(api: Any, resource: Any) -> Any:
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


def test_the_version_is_told(api: Any) -> None:
    assert client.VersionApi(api).get_code().git_version.startswith("v1.37")
