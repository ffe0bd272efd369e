"""What a scenario leaves behind is noticed: objects, changed objects, and devices that are not as before."""

from collections.abc import Iterator

import pytest

from tests.clusters import DRIVER_NAMESPACE, ApiClient, EmbeddedCluster
from tools.scenarios.places.projection import set_config
from tools.scenarios.traces import changes, traces, wait_as_before

NODE = "node-0"


@pytest.fixture(scope="module")
def api() -> Iterator[ApiClient]:
    with EmbeddedCluster() as cluster:
        cluster.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DRIVER_NAMESPACE}})
        set_config(cluster.api, "version: v1\n")
        published = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "one"}}
        pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.nvidia.com", "nodeName": NODE, "pool": pool, "devices": [{"name": "gpu-0"}]}
        cluster.api.create({**published, "spec": spec})
        yield cluster.api


@pytest.mark.parametrize("kind", ["Namespace", "ConfigMap"])
def test_an_object_that_is_left_over_is_told_until_it_is_gone(api: ApiClient, kind: str) -> None:
    before = traces(api)
    left = api.create({"apiVersion": "v1", "kind": kind, "metadata": {"name": "left"}})
    told = changes(before, traces(api))
    api.delete(api.path_of(left))
    assert any(sentence.endswith("left is left over") for sentence in told)
    assert wait_as_before(api, before) == []
