"""A node moves from NVIDIA's driver to this one with a pod on its GPU, which notices nothing."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.clusters import (
    CommandFailed,
    DriverNode,
    Object,
    RealCluster,
    fresh_namespace,
    paths,
    wait_for,
    wait_for_list,
)
from tests.eventually import eventually
from tests.flow.claims import (
    allocated,
    claim_of,
    gpu_nodes,
    gpu_pod,
    make_claim,
    make_template,
    request,
    start,
)
from tests.gpus import TAINT_BLOCKED, gpu_device_name, pool_name
from tests.kubeletplugin.migration.nvidia_state import slice_of
from tests.nvidia_driver import NvidiaDriver, slice_devices


@pytest.fixture
def cluster(start_cluster: Callable[[int], RealCluster]) -> RealCluster:
    """A cluster of its own, with one node."""
    return start_cluster(1)


@pytest.fixture
def driver(cluster: RealCluster, driver_launcher: tuple[str, ...]) -> DriverNode:
    """The node, with this driver's rights and classes in the cluster, and nothing started."""
    return DriverNode.install(cluster, launcher=driver_launcher)


@pytest.fixture
def namespace(cluster: RealCluster) -> Iterator[str]:
    with fresh_namespace(cluster.api) as name:
        yield name


def nvidia_on(driver: DriverNode) -> NvidiaDriver:
    """NVIDIA's driver on the node, with its slice published."""
    node, api = driver.node, driver.cluster.api
    listed = driver.machine.state.listed()
    uuids = {f"gpu-{number}": driver.machine.uuid(pci) for number, pci in enumerate(listed)}
    api.create(slice_of(node.name, slice_devices(uuids)))
    return NvidiaDriver(
        node.name,
        node.plugins_dir,
        node.registry_dir,
        node.cdi_dir,
        uuids,
        lambda namespace, name: api.get(paths.resource_claim(name, namespace)),
    )


def by_uuid(uuid: str) -> Object:
    expression = f"device.attributes['gpu.nvidia.com'].uuid == '{uuid}'"
    return request(selectors=[{"cel": {"expression": expression}}])


def tainted(slices: list[Object]) -> dict[str, str]:
    return {
        device["name"]: taint["value"]
        for item in slices
        for device in item["spec"].get("devices") or ()
        for taint in device.get("taints") or ()
        if taint["key"] == TAINT_BLOCKED
    }


def wait_tainted(driver: DriverNode, wanted: dict[str, str]) -> list[Object]:
    """Wait until these devices are tainted, in slices of this driver's pool alone."""
    pools = {pool_name(driver.node.name)}

    def is_so(slices: list[Object]) -> bool:
        return {item["spec"]["pool"]["name"] for item in slices} == pools and tainted(slices) == wanted

    return wait_for_list(driver.cluster.api, paths.resource_slice(), is_so)


def wait_event(driver: DriverNode, reason: str) -> Object:
    """Wait for an event of the node."""

    def came(events: list[Object]) -> bool:
        return any(event["reason"] == reason for event in events)

    events = wait_for_list(driver.cluster.api, paths.event(), came)
    return next(event for event in events if event["reason"] == reason)


def container(driver: DriverNode, namespace: str, pod: str) -> tuple[str, int]:
    """The id of the pod's container, and how often it was started again."""
    (status,) = driver.cluster.api.get(paths.pod(pod, namespace))["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]


def is_well(pod: Object) -> bool:
    """Whether its devices are healthy, where Kubernetes says so of pods with claims."""
    told = pod["status"]["containerStatuses"][0].get("allocatedResourcesStatus") or ()
    return all(device["health"] == "Healthy" for one in told for device in one["resources"])


def test_a_pod_keeps_its_gpu_while_the_driver_of_its_node_is_exchanged(
    cluster: RealCluster, driver: DriverNode, namespace: str
) -> None:
    with nvidia_on(driver) as nvidia:
        eventually("it is registered", nvidia.registered.is_set)
        make_template(cluster, namespace)
        train = gpu_pod("train")
        train["spec"]["containers"][0]["command"] = ["sh", "-c", "trap 'exit 1' USR1; sleep 1000000 & wait"]
        start(cluster, namespace, train)
        claim = claim_of(cluster, namespace, "train")
        number = int(allocated(claim)[0].removeprefix("gpu-"))
        pci = driver.machine.state.listed()[number]
        before = container(driver, namespace, "train")
        assert cluster.container("train", namespace).env["FROM"] == "nvidia"

        plugin = driver.start_plugin()
        driver.start_controller()
        told = wait_event(driver, "OtherDriver")
        assert (told["involvedObject"]["kind"], told["source"]["host"]) == ("Node", driver.node.name)
        assert "took over claims of NVIDIA's driver" not in plugin.log

    driver.wait_serving()
    held = {gpu_device_name(pci): "held-by-claim"}
    (item,) = wait_tainted(driver, held)
    assert item["metadata"]["generation"] == 1, "it was published before without the taint"
    assert container(driver, namespace, "train") == before
    wait_for(cluster.api, paths.pod("train", namespace), is_well)
    assert "(UID " in plugin.log
    assert f"{namespace}/{claim['metadata']['name']}" in plugin.log

    with suppress(CommandFailed):  # the shell may end with its container
        cluster.exec("train", ["sh", "-c", "kill -USR1 1"], namespace)
    wait_for(
        cluster.api,
        paths.pod("train", namespace),
        lambda pod: (
            pod["status"]["containerStatuses"][0]["restartCount"] == 1
            and "running" in pod["status"]["containerStatuses"][0]["state"]
        ),
    )
    assert gpu_nodes(cluster, namespace, "train") == [f"/dev/nvidia{number}"]
    assert "FROM" not in cluster.container("train", namespace).env

    make_claim(cluster, namespace, "next", by_uuid(driver.machine.uuid(pci)))
    cluster.api.create(gpu_pod("next", claim="next"), namespace)
    wait_for(cluster.api, paths.pod("next", namespace), is_unschedulable)

    cluster.api.delete(paths.pod("train", namespace))
    wait_for(
        cluster.api, paths.pod("next", namespace), lambda pod: pod["status"].get("phase") == "Running", 90
    )
    wait_tainted(driver, {})
    assert gpu_nodes(cluster, namespace, "next") == [f"/dev/nvidia{number}"]
    assert not nvidia.checkpoint.exists()
    assert list(driver.node.cdi_dir.glob("*.yaml")) == []


def is_unschedulable(pod: Object) -> bool:
    return any(one.get("reason") == "Unschedulable" for one in pod["status"].get("conditions") or ())
