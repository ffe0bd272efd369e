"""The embedded scheduler allocates in the order of the real one, and refuses what it cannot judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from driver.errors import ConfigError
from envtest.embedded.device_selector import CannotJudge
from envtest.embedded.scheduler import EmbeddedScheduler, complete_pools
from envtest.embedded.server import EmbeddedApiServer

GROUP = "resource.k8s.io"
RESOURCE = f"/apis/{GROUP}/v1"
CLASS = "gpu.nvidia.com"
SELECTOR = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"


class Cluster:
    """An API server with one class, and the objects of the tests."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        self.server = server
        self.scheduler = EmbeddedScheduler(server, "node-a")
        self.add_class(CLASS, {"selectors": [{"cel": {"expression": SELECTOR}}]})

    def add_class(self, name: str, spec: dict[str, Any]) -> None:
        self.server.create(
            f"{RESOURCE}/deviceclasses", {"kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
        )

    def add_slice(self, slice_name: str, *devices: str | dict[str, Any], **pool: Any) -> None:
        listed = [
            {"name": one, "attributes": {"type": {"string": "gpu"}}} if isinstance(one, str) else one
            for one in devices
        ]
        spec = {
            "driver": pool.pop("driver", CLASS),
            "nodeName": pool.pop("node", "node-a"),
            "pool": {"name": "node-a/gpu", "generation": 1, "resourceSliceCount": 1, **pool},
            "devices": listed,
        }
        self.server.create(
            f"{RESOURCE}/resourceslices",
            {"kind": "ResourceSlice", "metadata": {"name": slice_name}, "spec": spec},
        )

    def add_claim(self, name: str, *requests: dict[str, Any], **devices: Any) -> None:
        spec = {"devices": {"requests": list(requests or (request(),)), **devices}}
        self.server.create(
            f"{RESOURCE}/namespaces/default/resourceclaims",
            {"kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec},
        )

    def add_pod(self, name: str, *claims: str) -> None:
        entries = [{"name": claim, "resourceClaimName": claim} for claim in claims]
        spec = {"containers": [{"name": "main"}], "resourceClaims": entries}
        self.server.create(
            "/api/v1/namespaces/default/pods", {"kind": "Pod", "metadata": {"name": name}, "spec": spec}
        )

    def run(self, name: str, *requests: dict[str, Any]) -> str | None:
        """Schedule a pod with a claim of its own, both of this name."""
        self.add_claim(name, *requests)
        self.add_pod(name, name)
        return self.scheduler.schedule("default", name)

    def end(self, pod: str) -> None:
        self.server.delete(f"/api/v1/namespaces/default/pods/{pod}")
        self.scheduler.release_unused()

    def pod(self, name: str) -> dict[str, Any]:
        return next(pod for pod in self.server.objects("pods") if pod["metadata"]["name"] == name)

    def status(self, claim: str) -> dict[str, Any]:
        claims = self.server.objects("resourceclaims", GROUP)
        found = next(one for one in claims if one["metadata"]["name"] == claim)
        status: dict[str, Any] = found.get("status", {})
        return status

    def devices(self, claim: str) -> list[str]:
        allocation = self.status(claim).get("allocation", {"devices": {"results": []}})
        return [result["device"] for result in allocation["devices"]["results"]]


def request(name: str = "gpu", device_class: str = CLASS, **exactly: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": device_class, **exactly}}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with EmbeddedApiServer() as server:
        yield Cluster(server)


def test_the_allocation_is_written_as_the_api_has_it(cluster: Cluster) -> None:
    cluster.add_slice("s", "gpu-0", "gpu-1")

    assert cluster.run("train") is None

    pod = cluster.pod("train")
    result = {"request": "gpu", "driver": CLASS, "pool": "node-a/gpu", "device": "gpu-0"}
    field = {"key": "metadata.name", "operator": "In", "values": ["node-a"]}
    assert cluster.status("train") == {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        },
        "reservedFor": [{"resource": "pods", "name": "train", "uid": pod["metadata"]["uid"]}],
    }
    assert pod["spec"]["nodeName"] == "node-a"
    assert pod["status"]["conditions"] == [{"type": "PodScheduled", "status": "True"}]


def test_devices_come_in_the_order_of_pools_slices_and_their_lists(cluster: Cluster) -> None:
    cluster.add_slice("b", "z", "y", name="node-a/2", resourceSliceCount=2)
    cluster.add_slice("a", "x", name="node-a/2", resourceSliceCount=2)
    cluster.add_slice("c", "w", name="node-a/1")

    assert cluster.run("all", request("one"), request("three", count=3)) is None

    assert cluster.devices("all") == ["w", "x", "z", "y"]
    results = cluster.status("all")["allocation"]["devices"]["results"]
    assert [result["request"] for result in results] == ["one", "three", "three", "three"]


def test_a_pod_waits_for_a_device_and_gets_the_one_that_is_freed(cluster: Cluster) -> None:
    cluster.add_slice("s", "gpu-0", "gpu-1")
    cluster.run("first")
    cluster.run("second")

    reason = cluster.run("late")
    assert reason == "0/1 nodes are available: 1 cannot allocate all claims."
    (condition,) = cluster.pod("late")["status"]["conditions"]
    assert (condition["status"], condition["reason"], condition["message"]) == (
        "False",
        "Unschedulable",
        reason,
    )
    assert "nodeName" not in cluster.pod("late")["spec"]

    cluster.end("first")
    assert cluster.status("first") == {}
    assert cluster.scheduler.schedule("default", "late") is None
    assert cluster.devices("late") == ["gpu-0"]
    assert [one["status"] for one in cluster.pod("late")["status"]["conditions"]] == ["True"]


def test_a_pod_gets_all_of_its_claims_or_nothing(cluster: Cluster) -> None:
    cluster.add_slice("s", "gpu-0", "gpu-1")
    cluster.add_claim("one")
    cluster.add_claim("two", request(count=2))
    cluster.add_pod("greedy", "one", "two")

    assert cluster.scheduler.schedule("default", "greedy") is not None

    assert (cluster.status("one"), cluster.status("two")) == ({}, {})


def test_two_pods_share_a_claim_until_both_are_gone(cluster: Cluster) -> None:
    cluster.add_slice("s", "gpu-0")
    cluster.run("shared")
    cluster.add_pod("other", "shared")

    assert cluster.scheduler.schedule("default", "other") is None
    assert [user["name"] for user in cluster.status("shared")["reservedFor"]] == ["shared", "other"]

    cluster.end("shared")
    assert [user["name"] for user in cluster.status("shared")["reservedFor"]] == ["other"]
    assert cluster.devices("shared") == ["gpu-0"]
    cluster.end("other")
    assert cluster.status("shared") == {}


def test_a_pod_without_claims_is_bound(cluster: Cluster) -> None:
    cluster.add_pod("plain")

    assert cluster.scheduler.schedule("default", "plain") is None
    assert cluster.pod("plain")["spec"]["nodeName"] == "node-a"


def test_an_incomplete_pool_and_one_of_another_node_give_nothing(cluster: Cluster) -> None:
    cluster.add_slice("half", "gpu-0", resourceSliceCount=2)
    cluster.add_slice("elsewhere", "gpu-1", name="node-b/gpu", node="node-b")

    assert cluster.run("train") is not None

    cluster.add_slice("other-half", "gpu-2", resourceSliceCount=2)
    assert cluster.scheduler.schedule("default", "train") is None
    assert cluster.devices("train") == ["gpu-0"]


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    def one(name: str, generation: int, count: int) -> dict[str, Any]:
        pool = {"name": "p", "generation": generation, "resourceSliceCount": count}
        return {"metadata": {"name": name}, "spec": {"driver": "d", "pool": pool}}

    old, new_b, new_a = one("old", 1, 1), one("b", 2, 2), one("a", 2, 2)

    assert complete_pools([old]) == {("d", "p"): [old]}
    assert complete_pools([old, new_b]) == {}
    assert complete_pools([old, new_b, new_a]) == {("d", "p"): [new_a, new_b]}


def test_a_pool_that_lists_a_device_twice_is_not_used(cluster: Cluster) -> None:
    cluster.add_slice("s", "gpu-0", "gpu-0")

    assert cluster.run("train") is not None


@pytest.mark.parametrize(("effect", "expected"), [("NoSchedule", []), ("NoExecute", []), ("None", ["bad"])])
def test_taints_keep_new_claims_away_unless_they_only_inform(
    cluster: Cluster, effect: str, expected: list[str]
) -> None:
    taints = [{"key": "gpu.nvidia.com/xid", "effect": effect}]
    cluster.add_slice("s", {"name": "bad", "attributes": {"type": {"string": "gpu"}}, "taints": taints})

    cluster.run("train")

    assert cluster.devices("train") == expected


def test_the_class_selects(cluster: Cluster) -> None:
    cluster.add_slice("s", {"name": "mig", "attributes": {"type": {"string": "mig"}}}, "gpu-1")

    cluster.run("train")

    assert cluster.devices("train") == ["gpu-1"]


def test_the_configuration_of_the_class_comes_before_the_claims(cluster: Cluster) -> None:
    opaque = {"driver": CLASS, "parameters": {"kind": "GpuConfig"}}
    cluster.add_class("tuned", {"config": [{"opaque": opaque}]})
    cluster.add_slice("s", "gpu-0")
    cluster.add_claim("train", request("gpu", "tuned"), config=[{"requests": ["gpu"], "opaque": opaque}])
    cluster.add_pod("train", "train")

    cluster.scheduler.schedule("default", "train")

    assert cluster.status("train")["allocation"]["devices"]["config"] == [
        {"source": "FromClass", "requests": ["gpu"], "opaque": opaque},
        {"source": "FromClaim", "requests": ["gpu"], "opaque": opaque},
    ]


@pytest.mark.parametrize(
    "asked",
    [
        request(selectors=[{"cel": {"expression": "true"}}]),
        request(allocationMode="All"),
        request(adminAccess=True),
        request(capacity={"requests": {"memory": "1Gi"}}),
        request(tolerations=[{"operator": "Exists"}]),
        {"name": "gpu", "firstAvailable": [{"name": "big", "deviceClassName": CLASS}]},
    ],
    ids=lambda asked: next(
        iter(sorted(set(asked.get("exactly", {})) - {"deviceClassName"})), "firstAvailable"
    ),
)
def test_a_request_for_more_than_a_number_is_refused(cluster: Cluster, asked: dict[str, Any]) -> None:
    cluster.add_slice("s", "gpu-0")

    with pytest.raises(CannotJudge, match="train"):
        cluster.run("train", asked)

    assert cluster.status("train") == {}


def test_what_only_the_real_scheduler_can_judge_is_refused(cluster: Cluster) -> None:
    cluster.add_class("any", {})
    cluster.add_class("clever", {"selectors": [{"cel": {"expression": "device.driver.startsWith('g')"}}]})
    cluster.add_claim("matched", constraints=[{"matchAttribute": "gpu.nvidia.com/nvlinkDomain"}])
    cluster.add_pod("matched", "matched")

    with pytest.raises(CannotJudge, match="constraints"):
        cluster.scheduler.schedule("default", "matched")
    with pytest.raises(CannotJudge, match=r"classes any, gpu\.nvidia\.com"):
        cluster.run("mixed", request("a"), request("b", "any"))
    with pytest.raises(CannotJudge, match="startsWith"):
        cluster.run("clever", request("a", "clever"))
    cluster.add_slice("s", {"name": "part", "consumesCounters": []})
    with pytest.raises(CannotJudge, match="part"):
        cluster.run("counted", request("a", "any"))


def test_slices_for_many_nodes_are_refused(cluster: Cluster) -> None:
    cluster.add_slice("s", "gpu-0")
    network = {
        "driver": "net",
        "allNodes": True,
        "pool": {"name": "net", "generation": 1, "resourceSliceCount": 1},
    }
    cluster.server.create(f"{RESOURCE}/resourceslices", {"metadata": {"name": "net"}, "spec": network})

    with pytest.raises(CannotJudge, match="net"):
        cluster.run("train")


def test_what_is_not_there_is_named(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        cluster.run("train", request("gpu", "nowhere"))
    with pytest.raises(ConfigError, match="nobody"):
        cluster.scheduler.schedule("default", "nobody")
    cluster.add_pod("lonely", "no-claim")
    with pytest.raises(ConfigError, match="no-claim"):
        cluster.scheduler.schedule("default", "lonely")
