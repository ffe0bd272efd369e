"""The embedded scheduler places pods, writes allocations as the real one does, and says why a pod waits."""

from collections.abc import Iterator

import pytest

from tests.envtest.embedded.control.control_plane import (
    CLASS,
    GROUP,
    RESOURCE,
    ControlPlane,
    control_plane,
    request,
)


@pytest.fixture
def cluster() -> Iterator[ControlPlane]:
    with control_plane() as found:
        yield found


def test_the_allocation_is_written_as_the_api_has_it(cluster: ControlPlane) -> None:
    cluster.add_slice("s", "gpu-0", "gpu-1")
    cluster.add_claim("mine")
    cluster.add_pod("train", "mine")

    assert cluster.wait_bound("train") == "node-a"

    claim, pod = cluster.claim("mine"), cluster.pod("train")
    allocation = claim["status"]["allocation"]
    result = {"request": "gpu", "driver": CLASS, "pool": "s", "device": "gpu-0"}
    assert allocation["devices"]["results"] == [result]
    field = {"key": "metadata.name", "operator": "In", "values": ["node-a"]}
    assert allocation["nodeSelector"] == {"nodeSelectorTerms": [{"matchFields": [field]}]}
    assert allocation["allocationTimestamp"]
    user = {"resource": "pods", "name": "train", "uid": pod["metadata"]["uid"]}
    assert claim["status"]["reservedFor"] == [user]
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    (condition,) = pod["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    cluster.wait(lambda: cluster.told("Scheduled") == ["Successfully assigned default/train to node-a"])


def test_the_pod_with_the_higher_priority_comes_first(cluster: ControlPlane) -> None:
    cluster.add_claim("one")
    cluster.add_claim("two")
    cluster.add_priority("urgent", 100)
    cluster.add_slice("s", "gpu-0")
    with cluster.server.store.changed:  # the scheduler sees both at once
        cluster.add_pod("low", "one")
        cluster.add_pod("high", "two", priorityClassName="urgent")

    cluster.wait_bound("high")
    cluster.wait_refused("low")
    assert cluster.node_of("low") == ""


def test_a_claim_that_is_allocated_binds_its_pods_to_that_node(cluster: ControlPlane) -> None:
    cluster.add_node("node-b")
    cluster.add_slice("s", "gpu-0", node="node-b")
    cluster.add_claim("shared")
    for name in ("one", "two"):
        cluster.add_pod(name, "shared")
        assert cluster.wait_bound(name) == "node-b"

    assert len(cluster.claim("shared")["status"]["reservedFor"]) == 2
    cluster.add_pod("astray", "shared", nodeSelector={"kubernetes.io/hostname": "node-a"})
    message = cluster.wait_refused("astray")
    assert "1 node(s) didn't match Pod's node affinity/selector" in message
    assert "1 resourceclaim not available on the node" in message


def test_pods_that_are_gated_or_of_others_or_tolerate_no_node_wait(cluster: ControlPlane) -> None:
    cluster.add_node("shy", unschedulable=True)
    cluster.add_pod("gated", schedulingGates=[{"name": "wait"}])
    cluster.add_pod("foreign", schedulerName="other")
    cluster.add_pod("polite", nodeSelector={"kubernetes.io/hostname": "shy"})

    assert "1 node(s) were unschedulable" in cluster.wait_refused("polite")
    assert cluster.node_of("gated") == cluster.node_of("foreign") == ""


def test_a_pod_that_met_an_error_is_tried_again_when_its_back_off_is_over(cluster: ControlPlane) -> None:
    cluster.add_slice("s", "gpu-0", "gpu-1")
    colour = {"cel": {"expression": "device.attributes['example.com'].colour == 'red'"}}
    cluster.add_class("odd", selectors=[colour])
    cluster.add_claim("mine", request(device_class="odd"))
    cluster.add_pod("train", "mine")
    cluster.wait_refused("train")

    # The last event that helps: the class has no selector any more.
    classes = cluster.server.objects("deviceclasses", GROUP)
    stored = next(one for one in classes if one["metadata"]["name"] == "odd")
    cluster.server.replace(f"{RESOURCE}/deviceclasses/odd", {**stored, "spec": {}})

    assert cluster.wait_bound("train") == "node-a"
