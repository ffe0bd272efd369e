"""The driver with a node configuration about MIG, and what tests look at on the GPUs of its machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.clusters import PACKAGE_ROOT, Cluster, DriverNode, Object, paths, wait_gone
from tests.eventually import eventually
from tests.flow.claims import gpu_pod, request, wait_published
from tests.gpus import NvmlDevice, Placement

SAMPLES = PACKAGE_ROOT / "deploy" / "examples" / "mig"
RULES = "rules.yaml"


@contextmanager
def configured(driver: DriverNode, rules: str) -> Iterator[None]:
    """Run the controller with this node configuration; afterwards without one, all GPUs whole again."""
    driver.cluster.api.apply(PACKAGE_ROOT / "deviceclasses/mig.yaml")
    file = driver.folder / RULES
    file.write_text(rules)
    restart_controller(driver, "--config", str(file))
    try:
        yield
    finally:
        restart_controller(driver)
        wait_offered(driver, lambda devices: [kind(device) for device in devices] == ["gpu"] * 8)


def restart_controller(driver: DriverNode, *flags: str) -> None:
    """End the controller and start it with these flags."""
    driver.process("controller").stop()
    driver.start_controller(*flags)


def kind(device: Object) -> str:
    """The attribute ``type``, with a mark when the device takes no new claims."""
    blocked = any(taint["effect"] != "None" for taint in device.get("taints") or ())
    return str(device["attributes"]["type"]["string"]) + (" tainted" if blocked else "")


def offered(driver: DriverNode) -> list[Object]:
    """The devices of the node as they are published, in the order of the pool."""
    slices = sorted(wait_published(driver), key=lambda stored: str(stored["metadata"]["name"]))
    return [device for stored in slices for device in stored["spec"].get("devices") or ()]


def wait_offered(driver: DriverNode, wanted: Any) -> list[Object]:
    """Wait until the node's devices are as wanted."""
    return eventually("the devices are offered so", partial(offered, driver), wanted)


def handle(driver: DriverNode, gpu: int) -> NvmlDevice:
    """A handle of a GPU, by its place on the bus, in a session of the test's own."""
    nvml = driver.machine.nvml()
    nvml.init()
    return nvml.device_by_pci(sorted(driver.machine.state.gpus)[gpu])


def cut(driver: DriverNode) -> dict[int, list[tuple[int, int]]]:
    """The GPU instances of the machine: GPU by its place on the bus -> start and size of each."""
    state = driver.machine.state.gpus
    return {
        gpu: sorted((one.placement.start, one.placement.size) for one in state[pci].mig.instances)
        for gpu, pci in enumerate(sorted(state))
        if state[pci].mig.instances
    }


def wait_cut(driver: DriverNode, wanted: dict[int, list[tuple[int, int]]]) -> None:
    """Wait until exactly these instances exist."""
    eventually(f"the GPUs are cut as {wanted}", partial(cut, driver), lambda instances: instances == wanted)


def admin_cuts(driver: DriverNode, gpu: int, profile_id: int, placement: Placement) -> int:
    """Make a GPU instance with a compute instance all over it, as nvidia-smi does; its id."""
    device = handle(driver, gpu)
    device.set_mig_mode(enabled=True)
    made = device.create_gpu_instance(profile_id, placement)
    widest = max(device.compute_instance_profiles(made.id), key=lambda profile: profile.slices)
    device.create_compute_instance(made.id, widest.id)
    return made.id


def admin_clears(driver: DriverNode, gpu: int) -> None:
    """Destroy what is on a GPU and turn MIG off."""
    device = handle(driver, gpu)
    for instance in device.gpu_instances():
        for inside in device.compute_instances(instance.id):
            device.destroy_compute_instance(instance.id, inside.id)
        device.destroy_gpu_instance(instance.id)
    device.set_mig_mode(enabled=False)


def profile(name: str, device_class: str = "mig.nvidia.com", more: str = "true") -> Object:
    """A request for a partition of exactly this profile."""
    expression = f"device.attributes['gpu.nvidia.com'].profile == '{name}' && {more}"
    return request(device_class=device_class, selectors=[{"cel": {"expression": expression}}])


def create_sample(cluster: Cluster, namespace: str, sample: str, folder: Path = SAMPLES) -> list[Object]:
    """Create the objects of a sample, with the image that the cluster has; its pods."""
    pods = []
    for made in yaml.safe_load_all((folder / f"{sample}.yaml").read_text()):
        if made["kind"] == "Pod":
            made["spec"]["terminationGracePeriodSeconds"] = 0
            for container in made["spec"]["containers"]:
                container.pop("command")
                container |= {"image": "localhost/busybox:1", "imagePullPolicy": "Never"}
            pods.append(made)
        cluster.api.apply(made, namespace)
    assert pods, f"{sample} has no pod"
    return pods


def partition_nodes(cluster: Cluster, namespace: str, pod: str, container: str | None = None) -> list[str]:
    """The device nodes that tell what a container got: GPUs, capabilities of instances, DRM nodes."""
    nodes = cluster.container(pod, namespace, container).device_nodes
    return [
        node
        for node in nodes
        if node.startswith(("/dev/nvidia-caps/", "/dev/dri/")) or node.removeprefix("/dev/nvidia").isdigit()
    ]


def template(cluster: Cluster, namespace: str, name: str, *requests: Object) -> None:
    """A claim template of that name."""
    cluster.api.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name},
            "spec": {"spec": {"devices": {"requests": list(requests)}}},
        },
        namespace,
    )


def pod_of(name: str, claim_template: str) -> Object:
    """A pod with a claim from a template."""
    pod = gpu_pod(name)
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": claim_template}]
    return pod


def end(cluster: Cluster, namespace: str, *pods: str) -> None:
    """Delete pods and wait until they are gone."""
    for pod in pods:
        cluster.api.delete(paths.pod(pod, namespace))
    for pod in pods:
        wait_gone(cluster.api, paths.pod(pod, namespace))
