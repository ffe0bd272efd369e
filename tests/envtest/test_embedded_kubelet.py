"""The embedded kubelet over the real face of the plugin: registration, health, prepare and unprepare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from driver.errors import ClaimBlocked
from envtest.embedded.kubelet import EmbeddedKubelet, KubeletError
from envtest.embedded.server import EmbeddedApiServer
from kubeletplugin.claim_call import PreparedDevice
from kubeletplugin.face import READY_PART
from kubeletplugin.health_stream import DeviceHealth
from kubeletplugin.registration import Refused, Registered
from tests.kubeletplugin.fake_kubelet import FakeKubelet, Plugin, running_plugin

DRIVER = "gpu.nvidia.com"
KIND = "k8s.gpu.nvidia.com/claim"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"


class Node:
    """A kubelet on a node with a plugin, and pods that a scheduler has bound to it."""

    def __init__(self, server: EmbeddedApiServer, plugin: Plugin) -> None:
        self.server = server
        self.plugin = plugin
        self.cdi_dir = plugin.folder / "cdi"
        self.cdi_dir.mkdir()
        self.kubelet = EmbeddedKubelet(server, "node-a", plugin.folder / "registry", self.cdi_dir)
        edits = [{"name": name, "containerEdits": {"env": [f"{name}=1"]}} for name in ("a", "b")]
        spec = {"cdiVersion": "0.5.0", "kind": KIND, "devices": edits}
        (self.cdi_dir / "claims.json").write_text(json.dumps(spec))
        plugin.claims.devices = (
            PreparedDevice(("first",), "node/gpu", "gpu-0", (f"{KIND}=a",)),
            PreparedDevice(("second",), "node/gpu", "gpu-1", (f"{KIND}=b",)),
        )

    def register(self) -> None:
        def registered() -> bool:
            self.kubelet.register_plugins()
            return self.kubelet.drivers == (DRIVER,)

        assert self.server.wait_until(registered, 20)

    def bind(self, pod: str, claim: str, *containers: dict[str, Any], node: str = "node-a") -> None:
        """A pod with a claim that is allocated and reserved for it."""
        entries = [{"name": "gpus", "resourceClaimName": claim}]
        spec = {"nodeName": node, "containers": list(containers or (main(),)), "resourceClaims": entries}
        stored = self.server.create(PODS, {"kind": "Pod", "metadata": {"name": pod}, "spec": spec})
        if not any(one["metadata"]["name"] == claim for one in self.claims()):
            self.server.create(CLAIMS, {"kind": "ResourceClaim", "metadata": {"name": claim}, "spec": {}})
        found = next(one for one in self.claims() if one["metadata"]["name"] == claim)
        users = [*found.get("status", {}).get("reservedFor", ()), {"uid": stored["metadata"]["uid"]}]
        results = [{"request": "first", "driver": DRIVER, "pool": "node/gpu", "device": "gpu-0"}]
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": users}
        self.server.replace(f"{CLAIMS}/{claim}/status", {**found, "status": status})

    def claims(self) -> list[dict[str, Any]]:
        return self.server.objects("resourceclaims", "resource.k8s.io")


def main(name: str = "main", **used: str) -> dict[str, Any]:
    return {"name": name, "resources": {"claims": [{"name": "gpus", **used}]}}


@pytest.fixture
def node() -> Iterator[Node]:
    with EmbeddedApiServer() as server, running_plugin() as plugin:
        one = Node(server, plugin)
        yield one
        one.kubelet.close()


@pytest.fixture
def registered(node: Node) -> Node:
    node.register()
    return node


def test_the_plugin_is_told_that_it_is_registered_and_serves_from_then_on(node: Node) -> None:
    with FakeKubelet(node.plugin.service_socket) as observer:
        assert observer.serving() == "NOT_SERVING"
        node.plugin.face.serving.up(READY_PART)
        assert observer.serving() == "NOT_SERVING"

        node.register()

        assert observer.serving() == "SERVING"
        assert node.plugin.face.registration.outcome == Registered()


def test_the_health_that_the_plugin_streams_is_known_until_it_goes(registered: Node) -> None:
    kubelet, server = registered.kubelet, registered.server
    well = DeviceHealth("node/gpu", "gpu-0", "healthy", 1)

    registered.plugin.board.update((well, DeviceHealth("node/gpu", "gpu-1", "unhealthy", 1, "XID 79")))
    told = {("node/gpu", "gpu-0"): "HEALTHY", ("node/gpu", "gpu-1"): "UNHEALTHY"}
    assert server.wait_until(lambda: kubelet.health == told)

    registered.plugin.board.update((well,))
    assert server.wait_until(lambda: kubelet.health == {("node/gpu", "gpu-0"): "HEALTHY"})

    registered.plugin.service.stop()
    assert server.wait_until(lambda: kubelet.health == {})


def test_a_pod_gets_its_claim_prepared_and_each_container_its_devices(registered: Node) -> None:
    registered.bind("train", "gpus", main(), main("half", request="second"), {"name": "none"})

    views = registered.kubelet.start_pod("default", "train")

    env = {name: view.env for name, view in views.items()}
    assert env == {"main": {"a": "1", "b": "1"}, "half": {"b": "1"}, "none": {}}
    (claim,) = registered.claims()
    assert set(registered.plugin.claims.prepared) == {claim["metadata"]["uid"]}
    assert registered.server.objects("pods")[0]["status"]["phase"] == "Running"


def test_a_claim_is_unprepared_when_the_last_of_its_pods_ends(registered: Node) -> None:
    registered.bind("one", "shared")
    registered.bind("two", "shared")
    registered.kubelet.start_pod("default", "one")
    registered.kubelet.start_pod("default", "two")

    registered.kubelet.end_pod("default", "one")
    assert len(registered.plugin.claims.prepared) == 1
    registered.kubelet.end_pod("default", "two")

    assert registered.plugin.claims.prepared == {}
    assert registered.kubelet.prepared == {}
    assert registered.server.objects("pods") == []


def test_the_plugins_error_is_told_and_the_next_try_asks_again(registered: Node) -> None:
    registered.bind("train", "gpus")
    registered.plugin.claims.failures["gpus"] = ClaimBlocked("the GPU is busy", "wait")

    with pytest.raises(KubeletError, match="default/gpus: the GPU is busy"):
        registered.kubelet.start_pod("default", "train")
    assert "status" not in registered.server.objects("pods")[0]

    registered.plugin.claims.failures.clear()
    assert registered.kubelet.start_pod("default", "train")["main"].env == {"a": "1", "b": "1"}


def test_a_claim_that_cannot_be_unprepared_keeps_its_pod(registered: Node) -> None:
    registered.bind("train", "gpus")
    registered.kubelet.start_pod("default", "train")
    registered.plugin.claims.failures["gpus"] = ClaimBlocked("the disk is full", "make room")

    with pytest.raises(KubeletError, match="the disk is full"):
        registered.kubelet.end_pod("default", "train")
    assert len(registered.server.objects("pods")) == 1

    registered.plugin.claims.failures.clear()
    registered.kubelet.end_pod("default", "train")
    assert registered.server.objects("pods") == []


def test_without_a_plugin_no_pod_starts(node: Node) -> None:
    node.bind("train", "gpus")

    with pytest.raises(KubeletError, match=f"no plugin of the driver {DRIVER}"):
        node.kubelet.start_pod("default", "train")


def test_pods_that_the_scheduler_has_not_placed_here_are_refused(registered: Node) -> None:
    registered.bind("elsewhere", "gpus", node="node-b")
    with pytest.raises(KubeletError, match="not bound to node-a"):
        registered.kubelet.start_pod("default", "elsewhere")

    registered.bind("thief", "gpus")
    (claim,) = registered.claims()
    others = {**claim["status"], "reservedFor": []}
    registered.server.replace(f"{CLAIMS}/gpus/status", {**claim, "status": others})
    with pytest.raises(KubeletError, match="not reserved"):
        registered.kubelet.start_pod("default", "thief")
    with pytest.raises(KubeletError, match="no pod default/nobody"):
        registered.kubelet.start_pod("default", "nobody")


def test_a_socket_without_a_plugin_is_looked_at_again(node: Node) -> None:
    (node.plugin.folder / "registry" / "dead-reg.sock").touch()

    node.register()
    node.kubelet.register_plugins()

    assert node.kubelet.drivers == (DRIVER,)
    assert not isinstance(node.plugin.face.registration.outcome, Refused)
