"""What a scenario leaves behind is noticed: objects, changed objects, and devices that are not as before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from envtest.client import paths
from envtest.client.api import ApiClient
from envtest.client.waiting import fresh_namespace
from envtest.cluster import DRIVER_NAMESPACE
from envtest.embedded.cluster import EmbeddedCluster
from tools.scenarios.places.projection import set_config
from tools.scenarios.traces import Traces, changes, traces, wait_as_before

NODE = "node-0"


@pytest.fixture(scope="module")
def api() -> Iterator[ApiClient]:
    with EmbeddedCluster() as cluster:
        cluster.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DRIVER_NAMESPACE}})
        set_config(cluster.api, "version: v1\n")
        cluster.api.create(slice_of("gpu-0"))
        yield cluster.api


def slice_of(*devices: str, taints: tuple[dict[str, str], ...] = ()) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "one"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": name, "taints": list(taints)} for name in devices],
        },
    }


def named(kind: str, name: str, version: str = "v1", **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **more}


CLAIM = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "any"}}]}}
DRA = "resource.k8s.io/v1"
LEFT = [
    named("Pod", "left", spec={"containers": [{"name": "main", "image": "busybox:1.37"}]}),
    named("ResourceClaim", "left", DRA, spec=CLAIM),
    named("ResourceClaimTemplate", "left", DRA, spec={"spec": CLAIM}),
    named("DeviceClass", "left", DRA, spec={}),
    named("Namespace", "left"),
    named("ConfigMap", "left", data={}),
    named("ResourceQuota", "left", spec={"hard": {"pods": "1"}}),
    named("PriorityClass", "left", "scheduling.k8s.io/v1", value=1),
]


@pytest.mark.parametrize("left", LEFT, ids=[one["kind"] for one in LEFT])
def test_an_object_that_is_left_over_is_told(api: ApiClient, left: dict[str, Any]) -> None:
    before = traces(api)
    api.create(left)
    told = changes(before, traces(api))
    api.delete(api.path_of(left), grace_seconds=0)
    assert any(sentence.endswith("left is left over") for sentence in told)
    assert wait_as_before(api, before) == []


def test_an_object_of_before_that_is_gone_is_told(api: ApiClient) -> None:
    made = api.create(named("ConfigMap", "before", data={}))
    before = traces(api)
    api.delete(api.path_of(made))
    assert changes(before, traces(api)) == ["configmaps default/before is gone"]


def test_another_node_configuration_is_told(api: ApiClient) -> None:
    before = traces(api)
    set_config(api, "version: v1\nrules: []\n")
    told = changes(before, traces(api))
    set_config(api, "version: v1\n")
    assert told == ["the node configuration is another one"]
    assert changes(before, traces(api)) == []


def test_a_label_that_a_node_has_since_is_told(api: ApiClient) -> None:
    before = traces(api)
    api.patch(paths.node(NODE), {"metadata": {"labels": {"pool": "x"}}})
    told = changes(before, traces(api))
    api.patch(paths.node(NODE), {"metadata": {"labels": {"pool": None}}})
    assert told == ['nodes node-0 has changed: labels.pool was null and is "x"']


def test_a_node_that_takes_pods_again_is_as_before(api: ApiClient) -> None:
    before = traces(api)
    api.patch(paths.node(NODE), {"spec": {"unschedulable": True}})
    assert changes(before, traces(api)) != []
    api.patch(paths.node(NODE), {"spec": {"unschedulable": None}})
    assert changes(before, traces(api)) == []


def test_a_taint_of_a_node_is_told_but_for_those_that_kubernetes_sets(api: ApiClient) -> None:
    before = traces(api)
    ready = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    api.patch(paths.node(NODE), {"spec": {"taints": [ready]}})
    assert changes(before, traces(api)) == []
    api.patch(paths.node(NODE), {"spec": {"taints": [ready, {"key": "mine", "effect": "NoSchedule"}]}})
    (told,) = changes(before, traces(api))
    api.patch(paths.node(NODE), {"spec": {"taints": None}})
    assert '"mine"' in told
    assert changes(before, traces(api)) == []


def test_devices_that_came_or_are_sick_are_told(api: ApiClient) -> None:
    before = traces(api)
    api.replace(paths.resource_slice("one"), slice_of("gpu-0", "gpu-1"))
    assert changes(before, traces(api)) == ["device node-0/gpu-1 is left over"]
    api.replace(
        paths.resource_slice("one"), slice_of("gpu-0", taints=({"key": "sick", "effect": "NoSchedule"},))
    )
    (told,) = changes(before, traces(api))
    api.replace(paths.resource_slice("one"), slice_of("gpu-0"))
    assert told.startswith("device node-0/gpu-0 has changed: taints was [] and is [{")
    assert changes(before, traces(api)) == []


@pytest.mark.parametrize(("attribute", "told"), [("iommuFDEnabled", []), ("driverVersion", ["was"])])
def test_an_attribute_that_the_first_claim_changes_for_good_does_not_count(
    api: ApiClient, attribute: str, told: list[str]
) -> None:
    before = traces(api)
    changed = slice_of("gpu-0")
    changed["spec"]["devices"][0]["attributes"] = {attribute: {"bool": True}}
    api.apply(changed)

    found = changes(before, traces(api))
    api.apply(slice_of("gpu-0"))

    assert len(found) == len(told)
    assert all(word in sentence for word, sentence in zip(told, found, strict=True))


def test_the_time_of_a_taint_does_not_count(api: ApiClient) -> None:
    taint = {"key": "sick", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    api.replace(paths.resource_slice("one"), slice_of("gpu-0", taints=(taint,)))
    before = traces(api)
    later = {**taint, "timeAdded": "2026-01-01T00:00:01Z"}
    api.replace(paths.resource_slice("one"), slice_of("gpu-0", taints=(later,)))
    told = changes(before, traces(api))
    api.replace(paths.resource_slice("one"), slice_of("gpu-0"))
    assert told == []


def test_what_comes_by_itself_does_not_count(api: ApiClient) -> None:
    before = traces(api)
    with fresh_namespace(api) as namespace:
        now = traces(api)
        api.create(
            {**named("Event", "x"), "involvedObject": {"namespace": namespace}, "reason": "x"}, namespace
        )
        assert changes(now, traces(api)) == []
    assert wait_as_before(api, before) == []


def test_nothing_differs_from_itself() -> None:
    same = Traces({"pods a/b": {}}, {"n/gpu": {"taints": []}})
    assert changes(same, same) == []
