"""What Kubernetes makes of our slices where feature gates are on that are alpha in 1.37.

DRAListTypeAttributes: constraints and selectors over lists. DRAResourcePoolStatus: the answer to a
ResourcePoolStatusRequest, whose numbers are compared with what is published and held.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envtest.client import paths
from envtest.client.shipped import PACKAGE_ROOT
from envtest.client.waiting import fresh_namespace, wait_for
from envtest.real.cluster import RealCluster
from envtest.real.startup import start_cluster
from gpuctl.demo.brisk import BRISK_ON_REAL
from gpuctl.demo.driver_node import DriverNode
from tests.flow.claims import gpu_pod, request, start, wait_published, wait_unschedulable

Object = dict[str, Any]

GATES = ("DRAListTypeAttributes", "DRAResourcePoolStatus", "DRAPartitionableDevicesType")
MESH, NUMA = "gpu.nvidia.com/nvlinkMesh", "resource.kubernetes.io/numaNode"
REQUESTS = "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests"
# GPUs 0 to 3 and 4 to 7 form meshes, with a link from each GPU to one of the other mesh. Here they are on
# four NUMA nodes, two on each socket.
CUBE = (PACKAGE_ROOT / "fakegpu" / "machines" / "dgx1-v100.yaml").read_text()
RULES = {
    "cube": "{version: v1, listAttributes: true}",
    "hgx-h100": """
        version: v1
        rules:
          - {when: gpu.index < 4, mig: {dynamic: {profiles: [1g, 2g, 3g]}}}
          - {mig: {layout: all-balanced}}
    """,
    "l4-quad": """
        version: v1
        rules:
          - {offer: whole, shared: {strategy: TimeSlicing, shares: 4}, memoryLimits: false}
    """,
}
POOLS = {machine: f"node-{number}/gpu.nvidia.com" for number, machine in enumerate(RULES)}


@pytest.fixture(scope="module")
def cluster(kubernetes: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A cluster with the gates on, and a node with the driver for each machine."""
    if kubernetes == "1.36":
        pytest.skip("1.36 does not know all of these gates")
    with start_cluster(len(RULES), kubernetes, gates=GATES) as started:
        folder = tmp_path_factory.mktemp("machines")
        drivers = [_driver(started, folder, index, name) for index, name in enumerate(RULES)]
        started.api.apply(PACKAGE_ROOT / "deviceclasses/mig.yaml")
        for driver in drivers:
            driver.wait_serving()
            wait_published(driver)
        yield started


def _driver(cluster: RealCluster, folder: Path, index: int, name: str) -> DriverNode:
    machine = name
    if name == "cube":
        head, *slots = CUBE.split("numa_node: ")
        text = head + "".join(f"numa_node: {number // 2}{slot[1:]}" for number, slot in enumerate(slots))
        (folder / "cube.yaml").write_text(text)
        machine = str(folder / "cube.yaml")
    driver = DriverNode.install(cluster, index, machine, launcher=BRISK_ON_REAL)
    rules = folder / f"rules-{index}.yaml"
    rules.write_text(RULES[name])
    driver.start_plugin()
    driver.start_controller("--config", str(rules))
    return driver


@pytest.fixture
def namespace(cluster: RealCluster) -> Iterator[str]:
    """A namespace for one test."""
    with fresh_namespace(cluster.api) as name:
        yield name


def v100(name: str, expression: str) -> Object:
    """A request for a GPU of the cube."""
    only = "device.attributes['gpu.nvidia.com'].?architecture.orValue('') == 'Volta'"
    return request(name, selectors=[{"cel": {"expression": f"{only} && {expression}"}}])


def with_index(name: str, index: int) -> Object:
    """A request for the GPU of the cube that has this index."""
    return v100(name, f"device.attributes['gpu.nvidia.com'].index == {index}")


def claim(cluster: RealCluster, namespace: str, name: str, *requests: Object, match: str = "") -> None:
    """Create a claim whose devices all match in an attribute."""
    constraints = [{"matchAttribute": match}] if match else []
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": list(requests), "constraints": constraints}},
    }
    cluster.api.create(body, namespace)


def devices_of(cluster: RealCluster, namespace: str, name: str) -> list[str]:
    """The devices of a claim, whose pod runs."""
    status = cluster.api.get(paths.resource_claim(name, namespace))["status"]
    return [one["device"] for one in status["allocation"]["devices"]["results"]]


def test_claims_get_pairs_of_gpus_that_are_linked(cluster: RealCluster, namespace: str) -> None:
    # Two links between the meshes, and one within a mesh.
    pairs = ((0, 4), (2, 6), (1, 3))
    for first, second in pairs:
        name = f"linked-{first}"
        claim(cluster, namespace, name, with_index("a", first), with_index("b", second), match=MESH)
        start(cluster, namespace, gpu_pod(name, name))

    assert [len(devices_of(cluster, namespace, f"linked-{first}")) for first, _ in pairs] == [2, 2, 2]


def test_gpus_without_a_link_do_not_match(cluster: RealCluster, namespace: str) -> None:
    claim(cluster, namespace, "apart", with_index("a", 0), with_index("b", 5), match=MESH)
    cluster.api.create(gpu_pod("apart", "apart"), namespace)

    wait_unschedulable(cluster, namespace, "apart")


def test_gpus_on_one_socket_match_by_their_numa_nodes(cluster: RealCluster, namespace: str) -> None:
    claim(cluster, namespace, "near", with_index("a", 0), with_index("b", 2), match=NUMA)
    claim(cluster, namespace, "far", with_index("a", 1), with_index("b", 4), match=NUMA)
    start(cluster, namespace, gpu_pod("near", "near"))
    cluster.api.create(gpu_pod("far", "far"), namespace)

    wait_unschedulable(cluster, namespace, "far")


def test_a_selector_finds_a_peer_in_the_list(cluster: RealCluster, namespace: str) -> None:
    peers_of_7 = "device.attributes['gpu.nvidia.com'].nvlinkPeers.includes(7)"
    near_3 = "device.attributes['resource.kubernetes.io'].numaNode.includes(3)"
    claim(cluster, namespace, "peers", v100("gpu", f"{peers_of_7} && {near_3}"))

    start(cluster, namespace, gpu_pod("peers", "peers"))

    # The peers of GPU 7 are 3, 4, 5 and 6; the first of them on its socket is 4.
    assert devices_of(cluster, namespace, "peers") == ["gpu-0000-85-00-0"]


def pool_status(cluster: RealCluster, namespace: str, machine: str, group_by: str = "") -> Object:
    """Kubernetes' answer about the pool of a machine."""
    spec = {"driver": "gpu.nvidia.com", "poolName": POOLS[machine]}
    if group_by:
        spec["defaultPartitionTypeAttribute"] = group_by
    name = f"{namespace}-{machine}-{len(group_by)}"
    body = {
        "apiVersion": "resource.k8s.io/v1alpha3",
        "kind": "ResourcePoolStatusRequest",
        "metadata": {"name": name},
        "spec": spec,
    }
    cluster.api.request("POST", REQUESTS, body)
    answered = wait_for(cluster.api, f"{REQUESTS}/{name}", lambda stored: bool(stored.get("status")), 60)
    (pool,) = answered["status"]["pools"]
    return dict(pool)


def counts(pool: Object) -> tuple[int, int, int, int]:
    """Total, allocated, available and unavailable devices."""
    return (
        pool["totalDevices"],
        pool["allocatedDevices"],
        pool["availableDevices"],
        pool["unavailableDevices"],
    )


def per_type(pool: Object) -> dict[str, tuple[int, int]]:
    """Total and allocatable devices by the value that they are grouped by."""
    return {one["type"]: (one["total"], one["allocatable"]) for one in pool["partitionSummary"]}


def test_a_pool_of_whole_gpus_is_counted(cluster: RealCluster, namespace: str) -> None:
    claim(cluster, namespace, "one", with_index("gpu", 0))
    start(cluster, namespace, gpu_pod("one", "one"))

    pool = pool_status(cluster, namespace, "cube")

    assert counts(pool) == (8, 1, 7, 0)
    assert "validationError" not in pool


def test_a_pool_of_dynamic_partitions_and_layouts_is_counted(cluster: RealCluster, namespace: str) -> None:
    small = "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"
    mig = request("gpu", "mig.nvidia.com", count=2, selectors=[{"cel": {"expression": small}}])
    claim(cluster, namespace, "two", mig)
    start(cluster, namespace, gpu_pod("two", "two"))

    pool = pool_status(cluster, namespace, "hgx-h100")

    # Four GPUs whole and at 12 places, and four in four partitions each.
    assert counts(pool) == (4 * 13 + 4 * 4, 2, 66, 0)
    assert "validationError" not in pool


def test_shares_are_counted_for_each_gpu(cluster: RealCluster, namespace: str) -> None:
    claim(cluster, namespace, "share", request("gpu", "shared-timesliced"))
    ada = "device.attributes['gpu.nvidia.com'].architecture == 'Ada Lovelace'"
    claim(cluster, namespace, "whole", request("gpu", selectors=[{"cel": {"expression": ada}}]))
    for name in ("share", "whole"):
        start(cluster, namespace, gpu_pod(name, name))

    pool = pool_status(cluster, namespace, "l4-quad", "resource.kubernetes.io/pciBusID")

    assert counts(pool) == (8, 2, 6, 0)
    assert "validationError" not in pool
    # One form of each GPU can be allocated, and none of the two GPUs in use.
    assert sorted(per_type(pool).values()) == [(2, 0), (2, 0), (2, 1), (2, 1)]
    summary = pool["shareableSummary"]
    assert (summary["fullyAvailableDevices"], summary["partiallyAvailableDevices"]) == (3, 1)
    (shares,) = (one for one in summary["capacity"] if one["name"] == "shares")
    assert (shares["total"], shares["consumed"], shares["available"]) == ("16", "1", "15")


def test_every_device_with_counters_carries_its_type(cluster: RealCluster, namespace: str) -> None:
    """Kubernetes 1.37 groups only devices that consume the same counters of one counter set.

    Each GPU has a counter set of its own, and each place a counter of its own. When this test fails because
    there are numbers, docs/compatibility.md can say so.
    """
    for machine in ("hgx-h100", "l4-quad"):
        pool = pool_status(cluster, namespace, machine, "gpu.nvidia.com/type")
        assert pool["validationError"].startswith("PartitionCostMismatch:")
        assert "partitionSummary" not in pool
