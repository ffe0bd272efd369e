"""Which devices are allocated is read from the claims of the node's pods, and from no others."""

import pytest

from controller.observe.allocations import allocated_devices
from tests.clusters import EmbeddedApiServer, Forbidden, KubeClient
from tests.controller.allocated import PODS, POOL, allocate, bind_pod

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"


def look(client: KubeClient) -> frozenset[str]:
    return allocated_devices(client, node="node-a", driver="gpu.nvidia.com", pool=POOL)


def test_the_devices_of_the_pools_claims_count_and_admin_access_takes_none(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    allocate(server, "one", "gpu-a", "gpu-b")
    allocate(server, "two", "gpu-c")
    allocate(server, "monitor", "gpu-d", adminAccess=True)
    allocate(server, "elsewhere", "gpu-e", pool="node-b/gpu.nvidia.com")
    allocate(server, "another", "gpu-f", driver="nic.example.com")
    server.create(CLAIMS, {"metadata": {"name": "waits"}, "spec": {"devices": {}}})
    for claim in ("waits", "gone"):
        bind_pod(server, f"pod-{claim}", claim)

    assert look(client) == {"gpu-a", "gpu-b", "gpu-c"}


def test_claims_of_other_nodes_are_not_read_nor_those_of_pods_that_have_ended(
    server: EmbeddedApiServer, client: KubeClient
) -> None:
    allocate(server, "here", "gpu-a")
    allocate(server, "ended", "gpu-b")
    pod = next(one for one in server.objects("pods") if one["metadata"]["name"] == "ended")
    server.replace(f"{PODS}/ended/status", {**pod, "status": {"phase": "Succeeded"}})
    allocate(server, "there", "gpu-c", node="node-b")

    assert look(client) == {"gpu-a"}
    assert server.count("get", "resourceclaims") == 1
    assert server.count("list", "resourceclaims") == 0


def test_the_claims_that_were_made_for_a_pod_count(server: EmbeddedApiServer, client: KubeClient) -> None:
    """One from a template, and one for its limits; their names are in the pod's status."""
    for claim, device in (("made", "gpu-a"), ("for-limits", "gpu-b")):
        allocate(server, claim, device)
        server.delete(f"{PODS}/{claim}")
    entry = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
    mapping = {"containerName": "c", "resourceName": "nvidia.com/gpu", "requestName": "r"}
    status = {
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "for-limits", "requestMappings": [mapping]},
    }
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    bind_pod(server, "train", "unused", resourceClaims=[entry], containers=[container])
    (pod,) = server.objects("pods")
    server.replace(f"{PODS}/train/status", {**pod, "status": status})

    assert look(client) == {"gpu-a", "gpu-b"}


@pytest.mark.parametrize(("verb", "path"), [("list", "/pods"), ("get", "/resourceclaims/one$")])
def test_a_refusal_is_an_error_and_not_an_empty_answer(
    server: EmbeddedApiServer, client: KubeClient, verb: str, path: str
) -> None:
    allocate(server, "one", "gpu-a")
    server.fail(verb, path, code=403)
    with pytest.raises(Forbidden):
        look(client)


def test_more_pods_than_fit_in_one_page_are_all_read(server: EmbeddedApiServer, client: KubeClient) -> None:
    allocate(server, "shared", "gpu-a")
    for number in range(500):
        bind_pod(server, f"p{number:03}", "shared")
    allocate(server, "last", "gpu-b")
    assert look(client) == {"gpu-a", "gpu-b"}
    assert server.count("list", "pods") == 2
