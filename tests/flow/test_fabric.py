"""Fabric partitions: a constraint makes the scheduler pick whole ones; each is active while a pod has it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.clusters import PACKAGE_ROOT, Cluster, DriverNode, Object, paths
from tests.eventually import eventually
from tests.flow.claims import allocated, claim_of, gpu_nodes, gpu_pod, request, wait_running
from tests.flow.mig_scene import configured, end, kind, offered, wait_offered
from tests.flow.test_pods_and_claims import wait_refused
from tests.flow.told_scene import assert_told_alike

NVIDIA = Path(__file__).parents[1] / "vectors" / "nvidia-driver" / "specs" / "fabric-manager-partition.yaml"
SAMPLES = PACKAGE_ROOT / "deploy" / "examples" / "passthrough"
BESIDE = "version: v1\nrules:\n  - passthrough: true\n"


@pytest.fixture
def fabric(driver: DriverNode, namespace: str) -> Iterator[DriverNode]:
    """The node whose fabric manager was started in shared NVSwitch mode; afterwards it is as it was."""
    driver.machine.fabric.start(keeps=False, shared=True)
    wait_offered(driver, lambda devices: all("partition2" in one["attributes"] for one in devices))
    yield driver
    api = driver.cluster.api
    end(
        driver.cluster,
        namespace,
        *(pod["metadata"]["name"] for pod in api.list_objects(paths.pod(namespace=namespace))),
    )
    wait_connected(driver, set())
    driver.machine.fabric.start(keeps=False, shared=False)
    wait_offered(driver, lambda devices: not any("partition2" in one["attributes"] for one in devices))


def wait_connected(driver: DriverNode, wanted: set[int]) -> None:
    """Wait until the switches connect just these partitions."""
    eventually(
        f"the switches connect {wanted}",
        lambda: driver.machine.fabric.state.connected,
        lambda connected: set(connected) == wanted,
    )


def partition(driver: DriverNode, namespace: str, pod: str, size: int) -> int:
    """The partition of this size that all GPUs of a pod's claim were published in."""
    devices = allocated(claim_of(driver.cluster, namespace, pod))
    assert len(devices) == size
    published = {one["name"]: one["attributes"] for one in offered(driver)}
    (number,) = {published[name][f"partition{size}"]["int"] for name in devices}
    return int(number)


def template(cluster: Cluster, namespace: str, name: str, count: int, matched: str = "") -> None:
    """A claim template for so many GPUs, with equal values of an attribute."""
    constraint = {"requests": ["gpu"], "matchAttribute": f"gpu.nvidia.com/{matched}"}
    devices: Object = {
        "requests": [request(count=count)],
        **({"constraints": [constraint]} if matched else {}),
    }
    cluster.api.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name},
            "spec": {"spec": {"devices": devices}},
        },
        namespace,
    )


def pod_of(name: str, claim_template: str) -> Object:
    """A pod with a claim from a template."""
    pod = gpu_pod(name)
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": claim_template}]
    return pod


def create_spec(cluster: Cluster, namespace: str, file: Path) -> str:
    """Create the objects of a file with the image of the cluster; its pod.

    That image has no bash, and nvidia-smi, which needs the C library of another, fails in it.
    """
    name = ""
    for made in yaml.safe_load_all(file.read_text()):
        if made["kind"] == "Pod":
            name = made["metadata"]["name"]
            made["spec"]["terminationGracePeriodSeconds"] = 0
            for container in made["spec"]["containers"]:
                if container["command"][0] == "bash":
                    container["command"][0] = "sh"
                else:
                    container["command"] = ["sleep", "infinity"]
                container |= {"image": "localhost/busybox:1", "imagePullPolicy": "Never"}
        cluster.api.create(made, namespace)
    return str(name)


def test_specs_written_for_nvidias_driver_get_a_partition_that_is_active_meanwhile(
    fabric: DriverNode, namespace: str
) -> None:
    cluster = fabric.cluster
    pod = create_spec(cluster, namespace, NVIDIA)
    wait_running(cluster, namespace, pod)
    number = partition(fabric, namespace, pod, 2)
    wait_connected(fabric, {number})
    assert len(gpu_nodes(cluster, namespace, pod, "ctr")) == 2
    assert assert_told_alike(fabric, namespace, pod, "GpuReady")["fabricPartition"] == number

    other = create_spec(cluster, namespace, SAMPLES / "fabric-containers.yaml")
    wait_running(cluster, namespace, other)
    four = partition(fabric, namespace, other, 4)
    wait_connected(fabric, {number, four})

    template(cluster, namespace, "four", 4, "partition4")
    cluster.api.create(pod_of("waits", "four"), namespace)
    assert "cannot allocate all claims" in wait_refused(cluster, namespace, "waits")
    end(cluster, namespace, pod)
    wait_running(cluster, namespace, "waits")
    wait_connected(fabric, {four, partition(fabric, namespace, "waits", 4)})


def test_a_virtual_machine_and_a_container_have_partitions_beside_each_other(
    fabric: DriverNode, namespace: str
) -> None:
    cluster = fabric.cluster
    cluster.api.apply(PACKAGE_ROOT / "deviceclasses/vfio.yaml")
    with configured(fabric, BESIDE):
        wait_offered(fabric, lambda devices: sorted(map(kind, devices)) == ["gpu"] * 8 + ["vfio"] * 8)
        machine = create_spec(cluster, namespace, SAMPLES / "fabric-two-gpus.yaml")
        wait_running(cluster, namespace, machine)
        number = partition(fabric, namespace, machine, 2)
        wait_connected(fabric, {number})
        nodes = cluster.container(machine, namespace).device_nodes
        assert len([node for node in nodes if node.removeprefix("/dev/vfio/").isdigit()]) == 2

        template(cluster, namespace, "four", 4, "partition4")
        cluster.api.create(pod_of("train", "four"), namespace)
        wait_running(cluster, namespace, "train")
        wait_connected(fabric, {number, partition(fabric, namespace, "train", 4)})
        end(cluster, namespace, machine, "train")
        wait_connected(fabric, set())
