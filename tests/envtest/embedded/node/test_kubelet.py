"""The embedded kubelet over the real sockets of the plugin: registration, health, prepare and unprepare."""

from collections.abc import Iterator

import pytest

from envtest.embedded.node.kubelet import EmbeddedKubelet, KubeletTimes
from envtest.embedded.node.kubelet_claims import container_claims
from kubeletplugin.kubelet.registration import Registered
from tests.clusters import EmbeddedApiServer, Object
from tests.envtest.embedded.node.kubelet_node import (
    CLAIMS,
    DRIVER,
    PODS,
    SLICES,
    Node,
    bare,
    claim_object,
    head,
    main,
)
from tests.gpus import ClaimBlocked, Health
from tests.kubeletplugin.fake_kubelet import FakeKubelet, running_plugin
from tests.plugin import READY_PART, DeviceHealth


@pytest.fixture
def node() -> Iterator[Node]:
    with EmbeddedApiServer() as server, running_plugin() as plugin:
        one = Node(server, plugin)
        yield one
        one.kubelet.stop()


@pytest.fixture
def registered(node: Node) -> Node:
    node.start()
    return node


def slice_object(name: str, driver: str) -> Object:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": "node-a", "pool": pool, "devices": [{"name": "a"}]}
    return {**head("ResourceSlice", name), "apiVersion": "resource.k8s.io/v1", "spec": spec}


def test_the_plugin_is_told_that_it_is_registered_and_serves_from_then_on(node: Node) -> None:
    with FakeKubelet(node.plugin.service_socket) as observer:
        assert observer.serving() == "NOT_SERVING"
        node.plugin.sockets.serving.up(READY_PART)
        assert observer.serving() == "NOT_SERVING"

        node.start()

        node.wait(lambda: observer.serving() == "SERVING")
        assert node.plugin.sockets.registration.outcome == Registered()


def test_slices_are_wiped_at_the_start_and_when_their_plugin_was_away_too_long(node: Node) -> None:
    node.server.create(SLICES, slice_object("old", "nic.example.com"))
    node.kubelet = EmbeddedKubelet(node.server, node.layout, node.runtime, KubeletTimes(scan=0.05, wipe=0.2))
    node.start()
    node.wait(lambda: node.server.objects("resourceslices", "resource.k8s.io") == [])
    node.server.create(SLICES, slice_object("ours", DRIVER))
    node.server.create(SLICES, slice_object("theirs", "nic.example.com"))

    node.plugin.service.stop()

    def left() -> list[str]:
        found = node.server.objects("resourceslices", "resource.k8s.io")
        return [one["metadata"]["name"] for one in found]

    node.wait(lambda: left() == ["theirs"])


def test_the_health_that_the_plugin_streams_is_known_until_it_goes(registered: Node) -> None:
    health = registered.kubelet.plugins.health
    well = DeviceHealth("node/gpu", "gpu-0", Health("Healthy"), 10)
    ill = DeviceHealth("node/gpu", "gpu-1", Health("Unhealthy", "XID 79"), 10)

    registered.plugin.board.update((well, ill))
    registered.wait(lambda: health.of(DRIVER, "node/gpu", "gpu-0") == {"health": "Healthy"})
    assert health.of(DRIVER, "node/gpu", "gpu-1") == {"health": "Unhealthy", "message": "XID 79"}

    registered.plugin.service.stop()
    registered.wait(lambda: health.of(DRIVER, "node/gpu", "gpu-0") == {"health": "Unknown"})
    assert health.of(DRIVER, "node/gpu", "gpu-1") == {"health": "Unknown"}


def test_a_pod_gets_its_claim_prepared_and_each_container_its_devices(registered: Node) -> None:
    registered.bind("train", "gpus", main(), main("half", request="second"), bare("none"))

    env = registered.wait_running("train")

    assert env == {"main": {"a": "1", "b": "1"}, "half": {"b": "1"}, "none": {}}
    (claim,) = registered.claims()
    assert set(registered.plugin.claims.prepared) == {claim["metadata"]["uid"]}
    status = (registered.pod("train") or {})["status"]
    conditions = {one["type"]: one["status"] for one in status["conditions"]}
    assert conditions["Ready"] == "True"
    assert [one["name"] for one in status["containerStatuses"] if one["ready"]] == ["main", "half", "none"]


def test_a_claim_is_unprepared_when_the_last_of_its_pods_ends(registered: Node) -> None:
    registered.bind("one", "shared")
    registered.bind("two", "shared")
    registered.wait_running("one")
    registered.wait_running("two")

    registered.delete("one")
    registered.wait(lambda: len(registered.kubelet.claims.pods) == 1)
    assert len(registered.plugin.claims.prepared) == 1
    registered.delete("two")

    registered.wait(lambda: registered.plugin.claims.prepared == {})
    registered.wait(lambda: registered.kubelet.claims.claims() == [])
    registered.wait(lambda: registered.server.objects("pods") == [])


def test_a_claim_that_cannot_be_unprepared_keeps_its_devices_until_it_can(registered: Node) -> None:
    registered.bind("train", "gpus")
    registered.wait_running("train")
    registered.plugin.claims.failures["gpus"] = ClaimBlocked("the disk is full", "make room")

    registered.delete("train")
    registered.wait(lambda: registered.kubelet.claims.claims()[0].unpreparing)
    assert len(registered.plugin.claims.prepared) == 1

    registered.plugin.claims.failures.clear()
    registered.wait(lambda: registered.plugin.claims.prepared == {})


def test_a_claim_that_is_not_reserved_for_a_pod_is_refused(registered: Node) -> None:
    registered.server.create(CLAIMS, claim_object("gpus"))
    entries = [{"name": "gpus", "resourceClaimName": "gpus"}]
    spec = {"nodeName": "node-a", "containers": [main()], "resourceClaims": entries}
    registered.server.create(PODS, {**head("Pod", "thief"), "spec": spec})

    words = "is not allowed to use ResourceClaim gpus"
    registered.wait(lambda: registered.told("FailedPrepareDynamicResources", words))


def test_a_restarted_kubelet_knows_its_claims_and_unprepares_those_of_pods_that_went(node: Node) -> None:
    node.start()
    node.bind("stays", "kept")
    node.bind("goes", "lost")
    node.wait_running("stays")
    node.wait_running("goes")
    node.kubelet.stop()
    node.delete("goes")

    node.restart()

    node.wait(lambda: len(node.plugin.claims.prepared) == 1)
    node.wait(lambda: [info.name for info in node.kubelet.claims.claims()] == ["kept"])
    assert node.wait_running("stays")["main"] == {"a": "1", "b": "1"}


def test_a_container_gets_of_an_extended_claim_only_what_it_asks_for() -> None:
    mapped = [
        {"containerName": name, "resourceName": resource, "requestName": f"{name}-{resource}"}
        for name in ("asks", "idle")
        for resource in ("example.com/gpu", "example.com/none", "cpu")
    ]
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "made", "requestMappings": mapped}}
    pod = {"metadata": {"namespace": "default"}, "spec": {}, "status": status}
    amounts = {"example.com/gpu": "1", "example.com/none": "0", "cpu": "1"}

    assert container_claims(pod, {"name": "asks", "resources": {"requests": amounts}}) == {
        "made": ["asks-example.com/gpu"]
    }
    assert container_claims(pod, {"name": "idle"}) == {}
