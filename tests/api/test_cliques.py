"""The process that publishes channels may write slices of channels, one label of nodes, and nothing else."""

import http.client
from functools import partial
from typing import Any

import pytest

from driver.devices.names import CHANNELS_DRIVER_NAME
from envtest.client.api import APPLY, MERGE
from tests.api.written import slice_of
from tests.clusters import DRIVER_NAMESPACE, ApiClient, ApiRefused, Object, RealApiServer, paths
from tests.eventually import eventually
from tools.testbed.chart import rendered

CLIQUE = "5c2f8d1e-7a34-4b60-9e15-d30b6c8f4a72.4026"
LABEL = "nvidia.com/gpu.clique"
NODE = "rack-0"
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "DeviceClass")
DRY = {"dryRun": "All"}


CHANNEL = {"name": "channel-1", "attributes": {"type": {"string": "channel"}}}


def channels(**changed: Any) -> Object:
    """A slice of channels with these fields of its spec ``changed``; None leaves a field out."""
    expression = {"key": LABEL, "operator": "In", "values": [CLIQUE]}
    spec: Object = {
        "driver": CHANNELS_DRIVER_NAME,
        "pool": {"name": CLIQUE, "generation": 1, "resourceSliceCount": 1},
        "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]},
        "devices": [CHANNEL],
    }
    spec = {name: value for name, value in (spec | changed).items() if value is not None}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    return {**head, "metadata": {"name": "channels"}, "spec": spec}


def selecting(*expressions: Object, **more: Any) -> Object:
    return {"nodeSelectorTerms": [{"matchExpressions": list(expressions), **more}]}


@pytest.fixture(scope="module")
def publisher(api_server: RealApiServer) -> ApiClient:
    """The account of the process, with the policies of the chart in force."""
    made = rendered({"cliques": {"enabled": True}})
    chosen = [one for one in made if one["kind"] in POLICIES and "clique" in str(one)]
    api_server.api.apply(chosen)
    for name in (NODE, "rack-1"):
        api_server.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    api_server.api.create(slice_of(NODE))
    api = api_server.api_as(api_server.mint_token(DRIVER_NAMESPACE, "gpu-dra-cliques", NODE))
    for path, patch in (
        (paths.resource_slice(), None),
        (paths.node(NODE), {"spec": {"unschedulable": True}}),
    ):
        eventually(f"the policy is in force for {path}", partial(refusal, api, path, slice_of("x"), patch))
    return api


def refusal(
    api: ApiClient, path: str, item: Object, patch: Object | None = None, method: str = "POST"
) -> str:
    """Why the API server refuses a write, in a dry run; empty if it allows it."""
    try:
        if patch is not None:
            api.request("PATCH", path, patch, content_type=MERGE, query=DRY)
        else:
            api.request(method, path, item, query=DRY)
    except ApiRefused as error:
        assert error.status == http.client.FORBIDDEN, error
        return str(error)
    return ""


OTHER_KEY = {"key": "pool", "operator": "In", "values": [CLIQUE]}
OWN_KEY = {"key": LABEL, "operator": "In", "values": [CLIQUE]}
NO_PLACE = "a slice of channels is for the nodes whose label"


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (channels(), ""),
        (channels(driver="gpu.nvidia.com"), 'only slices with spec.driver "channels.gpu.nvidia.com"'),
        (channels(nodeSelector=selecting(OTHER_KEY)), NO_PLACE),
        (channels(nodeSelector=selecting(OWN_KEY, OTHER_KEY)), NO_PLACE),
        (channels(nodeSelector=selecting({**OWN_KEY, "operator": "NotIn"})), NO_PLACE),
        (channels(nodeSelector=selecting({**OWN_KEY, "values": ["other"]})), NO_PLACE),
        (channels(nodeSelector=None, nodeName=NODE), NO_PLACE),
        (channels(nodeSelector=None, allNodes=True), NO_PLACE),
        (channels(devices=[{"name": "channel-1"}]), "and the attribute type: channel"),
        (channels(devices=[{**CHANNEL, "name": "gpu-0"}]), "needs a name such as channel-1"),
    ],
)
def test_a_slice_is_of_channels_and_for_the_nodes_of_its_clique(
    publisher: ApiClient, item: Object, said: str
) -> None:
    found = refusal(publisher, paths.resource_slice(), item)
    assert said in found
    assert bool(found) is bool(said)


def test_a_slice_of_gpus_can_be_neither_changed_nor_deleted(
    api_server: RealApiServer, publisher: ApiClient
) -> None:
    path = paths.resource_slice(slice_of(NODE)["metadata"]["name"])
    stored = api_server.api.get(path)
    emptied = {**stored, "spec": {**stored["spec"], "devices": []}}
    assert "only slices with spec.driver" in refusal(publisher, path, emptied, method="PUT")
    assert "only slices with spec.driver" in refusal(publisher, path, {}, method="DELETE")


@pytest.mark.parametrize(
    ("patch", "is_allowed"),
    [
        ({"metadata": {"labels": {LABEL: CLIQUE}}}, True),
        ({"metadata": {"labels": {LABEL: None}}}, True),
        ({"metadata": {"labels": {LABEL: CLIQUE, "node-role.kubernetes.io/control-plane": ""}}}, False),
        ({"metadata": {"labels": {"other": None}}}, False),
        ({"metadata": {"annotations": {"other": "value"}}}, False),
        ({"metadata": {"finalizers": ["example.com/held"]}}, False),
        ({"spec": {"unschedulable": True}}, False),
        ({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, False),
    ],
)
def test_of_a_node_one_label_can_be_changed(
    api_server: RealApiServer, publisher: ApiClient, patch: Object, is_allowed: bool
) -> None:
    api_server.api.patch(paths.node(NODE), {"metadata": {"labels": {"other": "there"}}})
    found = refusal(publisher, paths.node(NODE), {}, patch)
    assert bool(found) is not is_allowed
    assert is_allowed or "only the label nvidia.com/gpu.clique" in found


def test_the_label_is_applied_and_one_of_somebody_else_is_a_conflict(
    api_server: RealApiServer, publisher: ApiClient
) -> None:
    def apply(clique: str) -> None:
        labels = {"metadata": {"name": "rack-1", "labels": {LABEL: clique}}}
        body = {"apiVersion": "v1", "kind": "Node", **labels}
        owner = {"fieldManager": "gpu-dra-cliques"}
        publisher.request("PATCH", paths.node("rack-1"), body, content_type=APPLY, query=owner)

    apply(CLIQUE)
    apply("other")
    api_server.api.patch(paths.node("rack-1"), {"metadata": {"labels": {LABEL: "theirs"}}})
    with pytest.raises(ApiRefused) as refused:
        apply(CLIQUE)
    assert refused.value.status == http.client.CONFLICT
