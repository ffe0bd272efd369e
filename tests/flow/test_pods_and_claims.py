"""How pods and claims belong together: what Kubernetes writes, in which words, and what it takes back."""

import pytest

from tests.clusters import Cluster, Object, paths, wait_for, wait_for_list, wait_gone
from tests.flow.claims import (
    CLASS,
    allocated,
    claim_of,
    gpu_nodes,
    gpu_pod,
    make_claim,
    make_template,
    start,
    wait_running,
)

FINALIZER = "resource.kubernetes.io/delete-protection"
TAINT_RULES = "/apis/resource.k8s.io/v1/devicetaintrules"


def refusal(pod: Object) -> str:
    """Why the scheduler finds no place for a pod; empty while it has not said so."""
    for condition in pod.get("status", {}).get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            assert condition["reason"] == "Unschedulable"
            return str(condition["message"])
    return ""


def wait_refused(cluster: Cluster, namespace: str, pod: str) -> str:
    return refusal(wait_for(cluster.api, paths.pod(pod, namespace), lambda stored: bool(refusal(stored))))


def wait_told(cluster: Cluster, namespace: str, reason: str) -> tuple[str, str]:
    """Kind of the object and message of the first event with this reason."""

    def told(events: list[Object]) -> bool:
        return any(event["reason"] == reason for event in events)

    events = wait_for_list(cluster.api, paths.event(namespace=namespace), told)
    event = next(event for event in events if event["reason"] == reason)
    return event["involvedObject"]["kind"], event["message"]


def test_a_claim_from_a_template_is_the_pods_and_goes_with_it(cluster: Cluster, namespace: str) -> None:
    make_template(cluster, namespace)
    start(cluster, namespace, gpu_pod("train"))
    claim, pod = claim_of(cluster, namespace, "train"), cluster.api.get(paths.pod("train", namespace))

    metadata = claim["metadata"]
    assert metadata["name"].startswith("train-gpu-")
    assert metadata["annotations"]["resource.kubernetes.io/pod-claim-name"] == "gpu"
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", "train", pod["metadata"]["uid"])
    assert metadata["finalizers"] == [FINALIZER]
    user = {"resource": "pods", "name": "train", "uid": pod["metadata"]["uid"]}
    assert claim["status"]["reservedFor"] == [user]
    (term,) = claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]}

    cluster.api.delete(paths.pod("train", namespace))
    wait_gone(cluster.api, paths.resource_claim(metadata["name"], namespace))


@pytest.mark.parametrize("claim", ["kept", ""], ids=["of its own", "from a template"])
def test_a_claim_in_use_outlives_its_deletion_until_its_pod_ends(
    cluster: Cluster, namespace: str, claim: str
) -> None:
    make_claim(cluster, namespace, "kept")
    make_template(cluster, namespace)
    start(cluster, namespace, gpu_pod("train", claim))
    name = claim or claim_of(cluster, namespace, "train")["metadata"]["name"]
    path = paths.resource_claim(name, namespace)

    cluster.api.delete(path)

    assert "deletionTimestamp" in cluster.api.get(path)["metadata"]
    start(cluster, namespace, gpu_pod("next"))  # its claim is made after the deletion was seen
    names = {one["metadata"]["name"] for one in cluster.api.list_objects(paths.resource_claim("", namespace))}
    next_name = claim_of(cluster, namespace, "next")["metadata"]["name"]
    assert names == {"kept", name, next_name}, "no second one is made"
    cluster.api.delete(paths.pod("train", namespace))
    wait_gone(cluster.api, path)


def test_a_pod_whose_claim_comes_later_runs_then(cluster: Cluster, namespace: str) -> None:
    cluster.api.create(gpu_pod("early", "late"), namespace)
    cluster.api.create(gpu_pod("other"), namespace)
    kind, message = wait_told(cluster, namespace, "FailedResourceClaimCreation")
    assert kind == "Pod"
    assert message == (
        'PodResourceClaim gpu: resource claim template "gpu": '
        'resourceclaimtemplate.resource.k8s.io "gpu" not found'
    )
    assert refusal(cluster.api.get(paths.pod("early", namespace))) == ""

    make_claim(cluster, namespace, "late")
    wait_running(cluster, namespace, "early")


@pytest.mark.parametrize("name", ["example.com/whole-gpu", f"deviceclass.resource.kubernetes.io/{CLASS}"])
def test_a_pod_that_asks_the_old_way_gets_a_claim(cluster: Cluster, namespace: str, name: str) -> None:
    path = paths.device_class(CLASS)
    cluster.api.patch(path, {"spec": {"extendedResourceName": "example.com/whole-gpu"}})
    pod = gpu_pod("old", "unused")
    del pod["spec"]["resourceClaims"]
    pod["spec"]["containers"][0]["resources"] = {"limits": {name: "2"}}
    try:
        start(cluster, namespace, pod)
    finally:
        cluster.api.patch(path, {"spec": {"extendedResourceName": None}})

    status = cluster.api.get(paths.pod("old", namespace))["status"]["extendedResourceClaimStatus"]
    claim = cluster.api.get(paths.resource_claim(status["resourceClaimName"], namespace))
    assert status["requestMappings"] == [
        {"containerName": "main", "resourceName": name, "requestName": "container-0-request-0"}
    ]
    assert claim["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true"
    assert len(allocated(claim)) == len(gpu_nodes(cluster, namespace, "old")) == 2


def test_a_taint_rule_drives_a_pod_from_its_device(cluster: Cluster, namespace: str) -> None:
    if cluster.kubernetes == "1.36":
        pytest.skip("DeviceTaintRules are served since 1.37")
    make_template(cluster, namespace)
    start(cluster, namespace, gpu_pod("victim"))
    (device,) = allocated(claim_of(cluster, namespace, "victim"))
    taint = {"key": "example.com/broken", "effect": "NoExecute"}
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": namespace},
        "spec": {"deviceSelector": {"driver": CLASS, "device": device}, "taint": taint},
    }
    cluster.api.create(rule)
    try:
        wait_gone(cluster.api, paths.pod("victim", namespace))
        assert wait_told(cluster, namespace, "DeviceTaintManagerEviction")[0] == "Pod"
        start(cluster, namespace, gpu_pod("next"))
        assert allocated(claim_of(cluster, namespace, "next")) != [device]
    finally:
        cluster.api.delete(f"{TAINT_RULES}/{namespace}")
