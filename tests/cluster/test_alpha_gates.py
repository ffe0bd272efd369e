"""What Kubernetes makes of our slices where feature gates are on that are alpha in 1.37.

DRAResourcePoolStatus: the answer to a ResourcePoolStatusRequest, whose numbers are compared with what is
published and held.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from envtest.real.startup import start_cluster
from tests.clusters import (
    BRISK_ON_REAL,
    PACKAGE_ROOT,
    DriverNode,
    Object,
    RealCluster,
    fresh_namespace,
    wait_for,
)
from tests.flow.claims import gpu_pod, request, start, wait_published

GATES = ("DRAResourcePoolStatus", "DRAPartitionableDevicesType")
REQUESTS = "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests"
RULES = {
    "dgx1-v100": "{version: v1}",
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
    driver = DriverNode.install(cluster, index, name, launcher=BRISK_ON_REAL)
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


def with_architecture(name: str, architecture: str) -> Object:
    """A request for a GPU of the only machine that has it."""
    expression = f"device.attributes['gpu.nvidia.com'].?architecture.orValue('') == '{architecture}'"
    return request(name, selectors=[{"cel": {"expression": expression}}])


def claim(cluster: RealCluster, namespace: str, name: str, *requests: Object) -> None:
    """Create a claim."""
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": list(requests)}},
    }
    cluster.api.create(body, namespace)


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
    claim(cluster, namespace, "one", with_architecture("gpu", "Volta"))
    start(cluster, namespace, gpu_pod("one", "one"))

    pool = pool_status(cluster, namespace, "dgx1-v100")

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
    claim(cluster, namespace, "whole", with_architecture("gpu", "Ada Lovelace"))
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
