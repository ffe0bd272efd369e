"""Shares on a node: the objects of the sharing lab, what pods were given, and how MPS holds them to it."""

import itertools
import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from fakegpu.mps.client import ClientLimits
from tests.clusters import PACKAGE_ROOT, Cluster, DriverNode, Object, paths
from tests.eventually import eventually
from tests.flow.claims import wait_running
from tests.flow.mig_scene import configured, end, kind, wait_offered
from tests.gpus import ComputeMode, CudaProcess

MPS_LIMITS = PACKAGE_ROOT / "deploy" / "scenarios" / "mps-limits"
SAMPLES = PACKAGE_ROOT / "deploy" / "examples" / "shared"
NODE_CONFIGS = PACKAGE_ROOT / "deploy" / "examples" / "node-config"
EXTENDED_CLASS = "deviceclasses/opt-in/gpu-shared.yaml"
CONTROL = "nvidia-cuda-mps-control"
PIPES = "/tmp/nvidia-mps"
LIMITS = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")


_process_ids = itertools.count(4_000_001)  # above what the kernel gives


@dataclass(frozen=True, slots=True)
class Given:
    """One device of a claim: what the allocation says of it, and what the plugin's journal has."""

    uid: str
    request: str
    device: str
    share_id: str | None
    consumed: dict[str, str]
    held: Object


@contextmanager
def shared(driver: DriverNode, namespace: str, rules: str) -> Iterator[list[Object]]:
    """The node offers shares by these rules; what it publishes.

    Ends the namespace's pods, has all GPUs whole again, and sees that nothing of MPS is left.
    """
    api = driver.cluster.api
    api.apply(PACKAGE_ROOT / EXTENDED_CLASS)
    with configured(driver, rules):
        try:
            yield wait_offered(driver, lambda devices: any(map(is_shared, devices)) and is_settled(devices))
        finally:
            left = [str(pod["metadata"]["name"]) for pod in api.list_objects(paths.pod(namespace=namespace))]
            end(driver.cluster, namespace, *left)
    # Fractional devices are of type gpu as well.
    wait_offered(driver, lambda devices: not any(map(is_shared, devices)) and is_settled(devices))
    wait_no_daemon(driver)
    assert {(gpu.compute_mode, gpu.time_slice) for gpu in driver.machine.state.gpus.values()} == {
        ("default", 0)
    }


def is_shared(device: Object) -> bool:
    """Whether a published device can be given to several claims at once."""
    return bool(device.get("allowMultipleAllocations"))


def is_settled(devices: list[Object]) -> bool:
    """Whether no device that is published is about to go."""
    return not any(kind(device).endswith("tainted") for device in devices)


def create(cluster: Cluster, namespace: str, file: Path) -> list[str]:
    """Create the objects of a file, with the image that the cluster has; the names of its pods.

    A Deployment's pods are created by themselves, so that a test can end one for good.
    """
    pods = []
    for made in _with_pods_alone(yaml.safe_load_all(file.read_text())):
        if made["kind"] == "Pod":
            made["spec"]["terminationGracePeriodSeconds"] = 0
            for container in (*made["spec"].get("initContainers", ()), *made["spec"]["containers"]):
                container.pop("command")
                container |= {"image": "localhost/busybox:1", "imagePullPolicy": "Never"}
            pods.append(str(made["metadata"]["name"]))
        cluster.api.create(made, namespace)
    return pods


def _with_pods_alone(objects: Iterable[Object]) -> Iterator[Object]:
    for one in objects:
        if one["kind"] != "Deployment":
            yield one
            continue
        template = one["spec"]["template"]
        for number in range(one["spec"]["replicas"]):
            name = f"{one['metadata']['name']}-{number}"
            metadata = {**template["metadata"], "name": name}
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "spec": deepcopy(template["spec"]),
            }


def start_all(cluster: Cluster, namespace: str, file: Path) -> list[str]:
    """Create the objects of a file and wait until its pods run; their names."""
    pods = create(cluster, namespace, file)
    for pod in pods:
        wait_running(cluster, namespace, pod)
    return pods


def claim_of_pod(cluster: Cluster, namespace: str, pod: str) -> Object:
    """The claim that was made for a pod, be it from a template or for its limits."""
    stored = cluster.api.get(paths.pod(pod, namespace))
    made = stored["status"].get("extendedResourceClaimStatus")
    if made is None:
        entry = stored["spec"]["resourceClaims"][0]
        made = (stored["status"].get("resourceClaimStatuses") or [entry])[0]
    return cluster.api.get(paths.resource_claim(made["resourceClaimName"], namespace))


def given(driver: DriverNode, namespace: str, pod: str) -> list[Given]:
    """What a running pod was given, in the order of its claim's allocation."""
    claim = claim_of_pod(driver.cluster, namespace, pod)
    uid = str(claim["metadata"]["uid"])
    entry = json.loads((driver.journal_dir / f"{uid}.json").read_text())["entry"]
    assert entry["state"] == "prepared"
    found = []
    for result in claim["status"]["allocation"]["devices"]["results"]:
        share_id = result.get("shareID")
        (held,) = [
            one
            for one in entry["devices"]
            if (one["device"], one["share_id"], one["request"])
            == (result["device"], share_id, result["request"])
        ]
        consumed = result.get("consumedCapacity") or {}
        found.append(Given(uid, result["request"], result["device"], share_id, consumed, held))
    return found


def share_of(driver: DriverNode, namespace: str, pod: str) -> Given:
    """The one share of a running pod."""
    (one,) = given(driver, namespace, pod)
    assert one.share_id is not None
    return one


def uuids_seen(driver: DriverNode, namespace: str, pod: str, container: str = "main") -> list[str]:
    """The GPUs that a container sees, by their UUIDs: nvidia-smi's words in it, or the nodes that it has.

    The containers of the embedded cluster run nothing.
    """
    cluster = driver.cluster
    facts = cluster.container(pod, namespace, container)
    minors = {f"/dev/nvidia{gpu.minor}": pci for pci, gpu in driver.machine.state.gpus.items()}
    by_node = [driver.machine.uuid(minors[node]) for node in facts.device_nodes if node in minors]
    look = getattr(cluster, "exec", None)
    if look is not None:
        lines = look(pod, ["/usr/bin/nvidia-smi", "-L"], namespace, container).splitlines()
        assert sorted(line.partition("(UUID: ")[2].rstrip(")") for line in lines) == sorted(by_node)
    return by_node


def first_gpu(driver: DriverNode) -> tuple[ComputeMode, int]:
    """Compute mode and time-slice (0 Default to 3 Long) of the first GPU on the bus."""
    state = driver.machine.state.gpus
    gpu = state[min(state)]
    return gpu.compute_mode, gpu.time_slice


def wait_first_gpu(driver: DriverNode, wanted: tuple[ComputeMode, int]) -> None:
    """Wait until the first GPU is in this mode with this time-slice."""
    eventually(f"the first GPU is {wanted}", partial(first_gpu, driver), lambda state: state == wanted)


def pipes_of(driver: DriverNode, namespace: str, pod: str, container: str = "main") -> Path:
    """The pipe directory of the daemon whose clients' folder a container has."""
    facts = driver.cluster.container(pod, namespace, container)
    assert facts.env["CUDA_MPS_PIPE_DIRECTORY"] == PIPES
    source = Path(facts.mounts[PIPES].source)
    found = driver.mps_dir / source.parent.name / "pipe"
    assert str(source).endswith(str(found.with_name("clients")))
    assert "ro" in facts.mounts[PIPES].options
    return found


def mps_environment(driver: DriverNode, namespace: str, pod: str, container: str = "main") -> dict[str, str]:
    """The limits in a container's environment."""
    env = driver.cluster.container(pod, namespace, container).env
    return {name: env[name] for name in LIMITS if name in env}


@contextmanager
def clients(driver: DriverNode, namespace: str, *pods: str) -> Iterator[list[ClientLimits]]:
    """A CUDA process of each pod, with the environment of its container; what MPS holds them to.

    Inside the block, the control daemon counts all of them as clients of one server.
    """
    pipes = {pipes_of(driver, namespace, pod) for pod in pods}
    (one,) = pipes
    with ExitStack() as stack:
        ids = [next(_process_ids) for _ in pods]
        found = [
            stack.enter_context(
                CudaProcess(
                    one.with_name("clients"),
                    mps_environment(driver, namespace, pod),
                    process_id=pid,
                    user_id=os.getuid(),
                )
            ).limits
            for pod, pid in zip(pods, ids, strict=True)
        ]
        (server,) = ask_mps(driver, one, "get_server_list")
        assert {limits.server for limits in found} == {int(server)}
        assert [int(line) for line in ask_mps(driver, one, f"get_client_list {server}")] == ids
        yield found


def ask_mps(driver: DriverNode, pipes: Path, command: str) -> list[str]:
    """The answer of a control daemon, by the driver root's control program as an admin runs it."""
    done = subprocess.run(
        [driver.folder / "driver" / "usr" / "bin" / CONTROL],
        input=f"{command}\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipes)},
    )
    return done.stdout.splitlines()


def defaults(driver: DriverNode, pipes: Path) -> tuple[list[str], list[str]]:
    """Percent of the threads and memory that the daemon lets any client have, in its own words."""
    percentage, memory = "get_default_active_thread_percentage", "get_default_device_pinned_mem_limit 0"
    return ask_mps(driver, pipes, percentage), ask_mps(driver, pipes, memory)


def daemon_pid(pipes: Path) -> int:
    """The process id of a control daemon, as its node counts."""
    return int((pipes / f"{CONTROL}.pid").read_text())


def wait_no_daemon(driver: DriverNode) -> None:
    """Wait until no control daemon is left on the node, nor its folder."""
    eventually("no daemon is left", lambda: list(driver.mps_dir.glob("*/pipe")), lambda left: not left)
