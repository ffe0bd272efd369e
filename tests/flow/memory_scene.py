"""Nodes of which one holds shares to their memory: what containers may have there, and who goes beyond it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from driver.nvml.api import NotFound
from fakegpu.machine.cgroups import CGROUP_ROOT
from tests.clusters import Cluster, DriverNode, KubeletTimes, Object, paths, wait_for
from tests.flow.claims import gpu_pod, request
from tests.flow.mig_scene import template
from tests.flow.several_machines import installed_on
from tests.flow.share_scene import given
from tests.gpus import FakeCudaClient, MemoryLimits, OutOfMemory, PciAddress

HOLDS, COUNTS = "l4-quad", "l40s-octo"
"""A machine whose NVIDIA driver holds shares to their memory, and one where they are counted alone."""

RULES = """version: v1
rules:
  - when: gpu.index < 2
    shared: {strategy: TimeSlicing, memory: {step: 1Gi}}
  - offer: whole
"""
TIMES = KubeletTimes(scan=0.1, unprepare_retry=0.3, prepare_retry=(0.5, 1.0), restart_back_off=(0.5, 1.0))
GIB = 2**30


@contextmanager
def held_and_counted(config: pytest.Config, rules: str = RULES) -> Iterator[tuple[DriverNode, DriverNode]]:
    """The driver on a node that holds shares to their memory, and on one that does not."""
    with installed_on(config, (HOLDS, COUNTS), rules=rules, pretend_cgroups=True, times=TIMES) as installed:
        holds, counts = installed[1]
        yield holds, counts


def memory_template(cluster: Cluster, namespace: str, name: str, memory: str, device_class: str) -> None:
    """A template of claims for one share of so much memory."""
    asked = request(device_class=device_class, capacity={"requests": {"memory": memory}})
    template(cluster, namespace, name, asked)


def memory_pod(name: str, claim_template: str, containers: tuple[str, ...] = ("main",)) -> Object:
    """A pod with a claim from a template."""
    pod = gpu_pod(name, containers=containers)
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": claim_template}]
    return pod


def status_of(stored: Object, container: str) -> Object:
    """The status of one container of a pod, empty while there is none."""
    status = stored.get("status", {})
    both = [*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())]
    found: Object = next((one for one in both if one["name"] == container), {})
    return found


def wait_container(
    cluster: Cluster, namespace: str, pod: str, container: str = "main", restarts: int = 0
) -> Object:
    """Wait until a container runs, started again so often at least; the pod."""

    def runs(stored: Object) -> bool:
        status = status_of(stored, container)
        return "running" in status.get("state", {}) and status["restartCount"] >= restarts

    return wait_for(cluster.api, paths.pod(pod, namespace), runs, 90)


def start_held(cluster: Cluster, namespace: str, pod: Object) -> None:
    """Create a pod and wait until all of its containers run."""
    cluster.api.create(pod, namespace)
    for container in pod["spec"]["containers"]:
        wait_container(cluster, namespace, pod["metadata"]["name"], container["name"])


def cgroup_of(driver: DriverNode, namespace: str, pod: str, container: str = "main") -> str:
    """The control group of a running container, as NVML takes it."""
    stored = driver.cluster.api.get(paths.pod(pod, namespace))
    identity = status_of(stored, container)["containerID"].rpartition("/")[2]
    root = driver.node.cgroup_dir
    (folder,) = root.rglob(identity)
    return f"{CGROUP_ROOT}/{folder.relative_to(root)}"


def gpu_of_pod(driver: DriverNode, namespace: str, pod: str) -> PciAddress:
    """The GPU of the one device of a pod's claim."""
    (one,) = given(driver, namespace, pod)
    return PciAddress.parse(one.held["pci"])


def limits_of(driver: DriverNode, namespace: str, pod: str, container: str = "main") -> MemoryLimits | None:
    """What NVML says of a running container, None where it is held to nothing."""
    nvml = driver.machine.nvml()
    nvml.init()
    device = nvml.device_by_pci(gpu_of_pod(driver, namespace, pod))
    try:
        return device.memory_limits(cgroup_of(driver, namespace, pod, container))
    except NotFound:
        return None


def hard_gib(driver: DriverNode, namespace: str, pod: str, container: str = "main") -> float:
    """The most that a running container can have, in GiB."""
    found = limits_of(driver, namespace, pod, container)
    assert found is not None, f"{container} of {pod} is held to nothing"
    return found.hard_bytes / GIB


@contextmanager
def cuda(driver: DriverNode, namespace: str, pod: str, container: str = "main") -> Iterator[FakeCudaClient]:
    """A process of a container with a CUDA context, whatever it does."""
    with ExitStack() as stack:
        pci, cgroup = gpu_of_pod(driver, namespace, pod), cgroup_of(driver, namespace, pod, container)
        client = driver.machine.cuda(pci, cgroup)
        stack.callback(client.end)
        yield client


def most_gib(client: FakeCudaClient) -> int:
    """How many GiB a process gets that takes all it can get."""
    before = client.allocated_bytes
    while True:
        try:
            client.allocate(GIB)
        except OutOfMemory:
            return (client.allocated_bytes - before) // GIB
