"""containerd and runc run the hook of every container and restart; without the plugin's yes none runs.

This machine may have cgroup v1, which the plugin refuses by name. With pretended control groups that follow
the real ones, containers are held as on a node with cgroup v2.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from envtest.real.startup import start_cluster
from tests.clusters import BRISK_ON_REAL, DriverNode, Object, paths, wait_for
from tests.flow.claims import wait_published
from tests.flow.memory_scene import (
    HOLDS,
    cgroup_of,
    hard_gib,
    memory_pod,
    memory_template,
    status_of,
    wait_container,
)
from tools.testbed.memory_hook import memory_hook

RULES = "version: v1\nrules:\n  - shared: {strategy: TimeSlicing, memory: {step: 1Gi}}\n"
NAMESPACE = "default"


@pytest.fixture(scope="module")
def driver(kubernetes: str) -> Iterator[DriverNode]:
    """The driver on a node that says that it has cgroup v2 and holds shares to their memory."""
    with start_cluster(1, kubernetes) as cluster:
        node = DriverNode.install(cluster, 0, HOLDS, launcher=BRISK_ON_REAL, memory_hook=memory_hook())
        config = node.folder / "node-config.yaml"
        config.write_text(RULES)
        node.start_plugin()
        node.start_controller("--config", str(config))
        node.wait_serving()
        wait_published(node)
        memory_template(cluster, NAMESPACE, "four", "4Gi", "shared-memory")
        yield node


def wait_refused(driver: DriverNode, pod: str, words: str) -> Object:
    """Wait until a container did not start for this reason; how its last try ended."""

    def ended(stored: Object) -> Object:
        status = status_of(stored, "main")
        states = (status.get("state", {}), status.get("lastState", {}))
        return next((one["terminated"] for one in states if "terminated" in one), {})

    def refused(stored: Object) -> bool:
        return words in str(ended(stored).get("message"))

    return ended(wait_for(driver.cluster.api, paths.pod(pod, NAMESPACE), refused, 60))


def program_of(driver: DriverNode, uid: str) -> Path:
    """The copy of the hook that the CDI spec of a claim names."""
    (program,) = (driver.data_dir / "hook").glob("*/gpu-memory-hook")
    assert str(program) in (driver.node.cdi_dir / f"k8s.gpu.nvidia.com-claim_{uid}.json").read_text()
    return program


def claim_uid(driver: DriverNode, pod: str) -> str:
    (status,) = driver.cluster.api.get(paths.pod(pod, NAMESPACE))["status"]["resourceClaimStatuses"]
    claim = driver.cluster.api.get(paths.resource_claim(status["resourceClaimName"], NAMESPACE))
    return str(claim["metadata"]["uid"])


def test_on_cgroup_v1_no_container_starts_and_its_pod_says_why(driver: DriverNode) -> None:
    api = driver.cluster.api
    driver.process("controller").stop()  # it would take back what the node cannot hold
    (driver.folder / "sys/fs/cgroup/cgroup.controllers").unlink()

    api.create(memory_pod("refused", "four"), NAMESPACE)

    ended = wait_refused(driver, "refused", "the node has cgroup v1")
    assert (ended["reason"], ended["exitCode"]) == ("StartError", 128)
    assert "gpu.nvidia.com does not let this container start: " in ended["message"]
    assert "set `memoryLimits: false` in the node configuration (permanent)" in ended["message"]
    status = api.get(paths.pod("refused", NAMESPACE))["status"]
    assert not [one for one in status["containerStatuses"] if one["ready"]]
    api.delete(paths.pod("refused", NAMESPACE))


@pytest.fixture
def pretending(driver: DriverNode) -> DriverNode:
    """The same node, which the plugin takes for one whose containers can be held."""
    driver.machine.pretend_cgroups(driver.node.cgroup_dir)
    if driver.process("kubeletplugin").returncode is None:
        driver.process("kubeletplugin").stop()
    driver.start_plugin()
    driver.wait_serving()
    return driver


def test_every_container_and_restart_asks_by_the_real_hook(pretending: DriverNode) -> None:
    driver, cluster = pretending, pretending.cluster
    pods = ("first", "second")
    for pod in pods:
        cluster.api.create(memory_pod(pod, "four"), NAMESPACE)
    for pod in pods:
        wait_container(cluster, NAMESPACE, pod)
        assert hard_gib(driver, NAMESPACE, pod) == 4
    before = cgroup_of(driver, NAMESPACE, "first")

    cluster.kill_container("first", NAMESPACE)
    wait_container(cluster, NAMESPACE, "first", restarts=1)

    assert cgroup_of(driver, NAMESPACE, "first") != before
    assert hard_gib(driver, NAMESPACE, "first") == 4
    for pod in pods:
        cluster.api.delete(paths.pod(pod, NAMESPACE))


def test_a_hook_that_is_missing_or_cannot_be_run_is_said_and_made_good(pretending: DriverNode) -> None:
    driver, cluster = pretending, pretending.cluster
    pods = ("without", "unable")
    for pod in pods:
        cluster.api.create(memory_pod(pod, "four"), NAMESPACE)
    for pod in pods:
        wait_container(cluster, NAMESPACE, pod)
    program = program_of(driver, claim_uid(driver, "without"))
    driver.process("kubeletplugin").kill()

    program.rename(program.with_name("aside"))
    cluster.kill_container("without", NAMESPACE)
    wait_refused(driver, "without", "no such file or directory")
    program.with_name("aside").rename(program)
    program.chmod(0o644)
    cluster.kill_container("unable", NAMESPACE)
    wait_refused(driver, "unable", "permission denied")

    driver.start_plugin()
    for pod in pods:
        wait_container(cluster, NAMESPACE, pod, restarts=1)
        assert hard_gib(driver, NAMESPACE, pod) == 4
