"""Shares whose memory the NVIDIA driver holds: each container has its limit before it runs, and no more."""

import signal
from collections.abc import Iterator
from functools import partial

import pytest

from fakegpu.machine.cgroups import without_dead_groups
from tests.clusters import DriverNode, fresh_namespace, paths, service_socket_name, wait_for_list
from tests.eventually import eventually
from tests.flow.memory_scene import (
    GIB,
    cgroup_of,
    cuda,
    gpu_of_pod,
    hard_gib,
    held_and_counted,
    memory_pod,
    memory_template,
    most_gib,
    start_held,
    status_of,
    wait_container,
)
from tests.gpus import OutOfMemory

HELD = "shared-memory"
NEXT_POD = "0b9dc6a0-8f43-4f2b-9d0c-5f6ad1bd9e05"
"""The UID of the pod that takes the plugin's place in a rolling update."""


@pytest.fixture(scope="module")
def nodes(request: pytest.FixtureRequest) -> Iterator[tuple[DriverNode, DriverNode]]:
    """The node that holds shares to their memory, and the one that counts them alone."""
    with held_and_counted(request.config) as both:
        yield both


@pytest.fixture
def driver(nodes: tuple[DriverNode, DriverNode]) -> DriverNode:
    """The node that holds shares to their memory."""
    return nodes[0]


@pytest.fixture(scope="module")
def place(nodes: tuple[DriverNode, DriverNode]) -> Iterator[str]:
    """The namespace of all tests here: to end one takes a real cluster several seconds."""
    with fresh_namespace(nodes[0].cluster.api) as name:
        yield name


@pytest.fixture
def namespace(driver: DriverNode, place: str) -> Iterator[str]:
    """The namespace, empty; what a test leaves there goes, and its limits with it."""
    api = driver.cluster.api
    yield place
    for pod in api.list_objects(paths.pod(namespace=place)):
        api.delete(paths.pod(pod["metadata"]["name"], place))
    for claim in api.list_objects(paths.resource_claim(namespace=place)):
        if not claim["metadata"].get("ownerReferences"):
            api.delete(paths.resource_claim(claim["metadata"]["name"], place))
    templates = f"{paths.RESOURCE_API}/namespaces/{place}/resourceclaimtemplates"
    for template in api.list_objects(templates):
        api.delete(f"{templates}/{template['metadata']['name']}")
    wait_for_list(api, paths.resource_claim(namespace=place), lambda left: not left)
    eventually("no limits are left", partial(limits_left, driver), lambda left: not left)


def limits_left(driver: DriverNode) -> list[str]:
    """The control groups that are still there and held to a limit."""
    state = driver.machine.state
    return [
        one.cgroup for gpu in state.gpus.values() for one in without_dead_groups(state, gpu).memory.limits
    ]


def test_a_share_of_ten_gib_gets_no_eleventh_whatever_its_pod_does(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    memory_template(cluster, namespace, "ten", "10Gi", HELD)
    hostile = memory_pod("hostile", "ten")
    limit = {"name": "NVIDIA_GPU_MEMORY_LIMIT", "value": "20480"}
    hostile["spec"]["containers"][0]["env"] = [limit, {**limit, "name": "NVIDIA_GPU_MEMORY_REQUEST"}]
    start_held(cluster, namespace, hostile)
    start_held(cluster, namespace, memory_pod("quiet", "ten"))

    assert gpu_of_pod(driver, namespace, "hostile") == gpu_of_pod(driver, namespace, "quiet")
    assert [hard_gib(driver, namespace, pod) for pod in ("hostile", "quiet")] == [10, 10]
    with cuda(driver, namespace, "hostile") as one, cuda(driver, namespace, "hostile") as two:
        assert most_gib(one) == 10
        with pytest.raises(OutOfMemory):
            two.allocate(GIB)
        with cuda(driver, namespace, "quiet") as other:
            assert most_gib(other) == 10, "its memory is there, whatever its neighbour took"


def test_a_restarted_container_has_its_limit_again_and_the_one_before_has_none(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    memory_template(cluster, namespace, "ten", "10Gi", HELD)
    start_held(cluster, namespace, memory_pod("train", "ten"))
    before = cgroup_of(driver, namespace, "train")
    with cuda(driver, namespace, "train") as client:
        client.allocate(10 * GIB)

        cluster.kill_container("train", namespace)
        wait_container(cluster, namespace, "train", restarts=1)

        assert client.allocated_bytes == 0
    assert cgroup_of(driver, namespace, "train") != before
    assert hard_gib(driver, namespace, "train") == 10


def test_no_container_misses_its_plugin_while_that_is_replaced(driver: DriverNode, namespace: str) -> None:
    cluster = driver.cluster
    pods = [f"train-{number}" for number in range(4)]
    memory_template(cluster, namespace, "five", "5Gi", HELD)
    for pod in pods:
        start_held(cluster, namespace, memory_pod(pod, "five"))

    second = driver.start_second_plugin(NEXT_POD)
    driver.wait_serving(driver.data_dir / service_socket_name(NEXT_POD))
    for pod in pods[:2]:
        cluster.kill_container(pod, namespace)
    driver.process("kubeletplugin").send(signal.SIGTERM)
    for pod in pods[2:]:
        cluster.kill_container(pod, namespace)
    driver.process("kubeletplugin").wait()

    for pod in pods:
        status = status_of(wait_container(cluster, namespace, pod, restarts=1), "main")
        assert status["restartCount"] == 1, f"a try failed: {status['lastState']}"
        assert hard_gib(driver, namespace, pod) == 5
    driver.start_plugin()
    driver.wait_serving()
    second.stop()
