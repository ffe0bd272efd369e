"""Gangs on a rack: each has one claim for an IMEX channel, which keeps its pods in one NVLink clique."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from driver.devices.names import CHANNELS_DRIVER_NAME
from fakegpu.driver_files.driver_root import IMEX_STATE
from tests.clusters import (
    DRIVER_NAMESPACE,
    PACKAGE_ROOT,
    Cluster,
    DriverNode,
    Object,
    fresh_namespace,
    paths,
    wait_for,
    wait_for_list,
    wait_gone,
)
from tests.eventually import eventually
from tests.flow.claims import (
    allocated,
    gpu_pod,
    make_claim,
    make_template,
    request,
    wait_running,
    wait_unschedulable,
)
from tests.flow.several_machines import installed_on
from tests.gpus import MACHINES

Trays = tuple[Cluster, tuple[DriverNode, ...]]

CLUSTER = "5c2f8d1e-7a34-4b60-9e15-d30b6c8f4a72"
CLIQUE, OTHER = f"{CLUSTER}.4026", f"{CLUSTER}.4027"
LABEL = "nvidia.com/gpu.clique"
FOLDER = "/dev/nvidia-caps-imex-channels/"
CHANNELS = 2
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "nvlink-channel"},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{CHANNELS_DRIVER_NAME}'"}}]},
}


@pytest.fixture(scope="module")
def trays(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trays]:
    """Two trays of one clique and two of another, with the driver, and two channels for each clique."""
    other: Path = tmp_path_factory.mktemp("machines") / "gb200-of-another-clique.yaml"
    machine = yaml.safe_load((MACHINES / "gb200-tray.yaml").read_text())
    machine["fabric"]["clique"] = 4027
    other.write_text(yaml.safe_dump(machine))
    machines = ("gb200-tray", "gb200-tray", str(other), str(other))
    with installed_on(request.config, machines) as (cluster, drivers):
        cluster.api.apply(PACKAGE_ROOT / "deploy/rbac.yaml")
        cluster.api.create(CLASS)
        for driver in drivers:
            driver.process("kubeletplugin").stop()
            driver.start_plugin("--channels")
            driver.wait_serving()
            eventually("its second driver is registered", lambda d=driver: registered(d))  # type: ignore[misc]
        name = cluster.nodes[0].name
        kubeconfig = cluster.service_account_kubeconfig(DRIVER_NAMESPACE, "gpu-dra-cliques", name)
        flags = ("--kubeconfig", str(kubeconfig), "--channels", str(CHANNELS))
        process = cluster.processes.start("cliques", (sys.executable, "-m", "controller.cliques", *flags))
        wait_for_list(cluster.api, "/api/v1/nodes", lambda nodes: all(map(clique_of, nodes)), 60)
        yield cluster, drivers
        process.send(signal.SIGTERM)
        assert process.wait() == 0, process.log


@pytest.fixture
def cluster(trays: Trays) -> Cluster:
    return trays[0]


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    with fresh_namespace(cluster.api) as name:
        yield name


def registered(driver: DriverNode) -> bool:
    """Whether the kubelet has registered the driver of channels."""
    return '"driver": "channels.gpu.nvidia.com"' in driver.process("kubeletplugin").log


def clique_of(node: Object) -> str:
    return str(node["metadata"].get("labels", {}).get(LABEL, ""))


def gang_pod(name: str, gang: str, clique: str = "") -> Object:
    """A pod of a gang, with its GPUs by a claim of its own; the first one may be sent to a clique."""
    pod = gpu_pod(name)
    spec = pod["spec"]
    spec["resourceClaims"].append({"name": "channel", "resourceClaimName": gang})
    spec["containers"][0]["resources"]["claims"].append({"name": "channel"})
    if clique:
        spec["nodeSelector"] = {LABEL: clique}
    return pod


def begin(cluster: Cluster, namespace: str, gang: str, *pods: str, clique: str = "") -> None:
    """A gang with its claim; its first pod may be sent to a clique."""
    make_claim(cluster, namespace, gang, request("channel", "nvlink-channel"))
    for number, name in enumerate(pods):
        cluster.api.create(gang_pod(name, gang, clique if number == 0 else ""), namespace)


def end(cluster: Cluster, namespace: str, gang: str, *pods: str) -> None:
    """Delete a gang, and wait until it is gone."""
    for name in pods:
        cluster.api.delete(paths.pod(name, namespace))
    for name in pods:
        wait_gone(cluster.api, paths.pod(name, namespace))
    cluster.api.delete(paths.resource_claim(gang, namespace))
    wait_gone(cluster.api, paths.resource_claim(gang, namespace))


def node_of(cluster: Cluster, namespace: str, pod: str) -> str:
    return str(cluster.api.get(paths.pod(pod, namespace))["spec"]["nodeName"])


def channels(cluster: Cluster, namespace: str, pod: str) -> list[str]:
    """The channels that the container of a pod sees."""
    nodes = cluster.container(pod, namespace).device_nodes
    return [node.removeprefix(FOLDER) for node in nodes if node.startswith(FOLDER)]


def test_gangs_on_the_same_nodes_have_different_channels_and_each_stays_in_its_clique(
    trays: Trays, namespace: str
) -> None:
    cluster, drivers = trays
    make_template(cluster, namespace, request(count=2))
    first, second = [f"first-{number}" for number in range(2)], [f"second-{number}" for number in range(2)]
    begin(cluster, namespace, "first", *first, clique=OTHER)
    for name in first:
        wait_running(cluster, namespace, name)
    begin(cluster, namespace, "second", *second, clique=OTHER)
    for name in second:
        wait_running(cluster, namespace, name)

    others = {driver.node.name for driver in drivers[2:]}
    assert {node_of(cluster, namespace, name) for name in first + second} <= others
    given = [
        allocated(cluster.api.get(paths.resource_claim(gang, namespace))) for gang in ("first", "second")
    ]
    assert sorted(given) == [["channel-1"], ["channel-2"]]
    for gang, pods in zip(given, (first, second), strict=True):
        for name in pods:
            assert channels(cluster, namespace, name) == [gang[0].replace("-", "")]
    end(cluster, namespace, "first", *first)
    end(cluster, namespace, "second", *second)
    left = "no CDI spec of a channel is left"
    eventually(left, lambda: not any([*driver.node.cdi_dir.glob("*channels*")] for driver in drivers))


def test_a_gang_waits_while_all_channels_of_the_cliques_are_taken(cluster: Cluster, namespace: str) -> None:
    make_template(cluster, namespace)
    for number in range(2 * CHANNELS):
        begin(cluster, namespace, f"gang-{number}", f"pod-{number}")
        wait_running(cluster, namespace, f"pod-{number}")

    begin(cluster, namespace, "late", "late")
    wait_unschedulable(cluster, namespace, "late")

    end(cluster, namespace, "gang-0", "pod-0")
    wait_running(cluster, namespace, "late")


def test_a_pod_waits_for_nvidia_imex_and_is_told_of_it(trays: Trays, namespace: str) -> None:
    cluster, drivers = trays
    make_template(cluster, namespace)
    states = [Path(driver.driver_root) / IMEX_STATE for driver in drivers]
    for state in states:
        state.write_text("INITIALIZING")
    try:
        begin(cluster, namespace, "gang", "gang-0")

        def told(events: list[Object]) -> bool:
            return any(
                "nvidia-imex of this node is not ready: INITIALIZING" in one["message"] for one in events
            )

        wait_for_list(cluster.api, paths.event(namespace=namespace), told, 60)
    finally:
        for state in states:
            state.unlink()
    wait_running(cluster, namespace, "gang-0")
    claim = wait_for(cluster.api, paths.resource_claim("gang", namespace), lambda _claim: True, 10)
    assert "devices" not in claim["status"], "no node writes into a gang's claim"
