"""A process that NVML tells of is found in its container, as the kernel and the kubelet really have it."""

import re
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.clusters import DriverNode, RealCluster, paths
from tests.eventually import eventually
from tests.flow.claims import allocated, claim_of, gpu_pod, make_template, start
from tests.flow.metrics import serve_metrics

GIB = 1 << 30


@pytest.fixture
def address(driver: DriverNode) -> Iterator[str]:
    """Where the plugin serves its numbers, for one test."""
    address = serve_metrics(driver, "kubeletplugin")
    driver.wait_serving()
    yield address
    driver.process("kubeletplugin").stop()
    driver.start_plugin()
    driver.wait_serving()


def process_of(cluster: RealCluster, namespace: str, pod: str, container: str) -> int:
    """The id of a process of a running container, as the cluster has it, whose process ids are its own."""
    statuses = cluster.api.get(paths.pod(pod, namespace))["status"]["containerStatuses"]
    (told,) = (one["containerID"] for one in statuses if one["name"] == container)
    identity = told.rpartition("/")[2]
    for file in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            if identity in file.read_text():
                status = (file.parent / "status").read_text()
                _, in_cluster, *_ = re.findall(r"\d+", re.findall(r"NSpid:(.*)", status)[0])
                return int(in_cluster)
        except OSError:  # it has ended
            continue
    raise AssertionError(f"no process of container {container}")


def used_by_container(address: str, namespace: str) -> dict[tuple[str, str], float]:
    """What containers of a namespace's claims use, by pod and container."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found = {}
    for line in lines:
        if line.startswith("gpu_dra_container_gpu_memory_used_bytes{"):
            labels = dict(re.findall(r'([a-z_]+)="([^"]*)"', line))
            if labels["claim_namespace"] == namespace:
                found[labels["pod"], labels["container"]] = float(line.rpartition(" ")[2])
    return found


def test_processes_are_told_by_pod_and_container(
    driver: DriverNode, real_cluster: RealCluster, namespace: str, address: str
) -> None:
    make_template(real_cluster, namespace)
    start(real_cluster, namespace, gpu_pod("train", containers=("main", "sidecar")))
    (device,) = allocated(claim_of(real_cluster, namespace, "train"))
    gpus = driver.machine.state.gpus
    pci = next(one for one in gpus if device.endswith(str(one).replace(":", "-").replace(".", "-")))
    processes = {
        process_of(real_cluster, namespace, "train", "main"): 3 * GIB,
        process_of(real_cluster, namespace, "train", "sidecar"): GIB,
    }
    driver.machine.use(pci, processes=processes)
    try:
        wanted = {("train", "main"): 3 * GIB, ("train", "sidecar"): GIB}
        used = partial(used_by_container, address, namespace)
        eventually("each container's memory is told", used, lambda found: found == wanted)
    finally:
        driver.machine.use(pci, processes={})
