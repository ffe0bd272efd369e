"""A GPU goes to a virtual machine and comes back to containers, whatever happens on the way."""

from collections.abc import Iterator
from functools import partial

import pytest
import yaml

from tests.clusters import PACKAGE_ROOT, Cluster, DriverNode, Object, paths, wait_for
from tests.eventually import eventually
from tests.flow.claims import allocated, claim_of, gpu_nodes, request, start, wait_running, wait_unschedulable
from tests.flow.mig_scene import end, pod_of, template
from tests.flow.passthrough_scene import beside_whole
from tests.gpus import PciAddress, bound_driver

VFIO = "vfio.gpu.nvidia.com"
SAMPLES = PACKAGE_ROOT / "deploy" / "examples" / "passthrough"


@pytest.fixture(scope="module", autouse=True)
def _configured(installed_driver: DriverNode) -> Iterator[None]:
    with beside_whole(installed_driver):
        yield


def drivers(driver: DriverNode) -> list[str | None]:
    """The kernel driver of each GPU, in the order of the bus."""
    sysfs = driver.folder / "sys"
    return [bound_driver(sysfs, pci) for pci in sorted(driver.machine.state.gpus)]


def wait_drivers(driver: DriverNode, *on_vfio: int) -> None:
    """Wait until exactly these GPUs are bound to vfio, and the others to the NVIDIA driver."""
    wanted = ["vfio-pci" if gpu in on_vfio else "nvidia" for gpu in range(8)]
    eventually(f"kernel drivers {wanted}", partial(drivers, driver), lambda bound: bound == wanted)


def at(driver: DriverNode, gpu: int, device_class: str) -> Object:
    """A request for one GPU, by its place on the bus."""
    pci = sorted(driver.machine.state.gpus)[gpu]
    expression = f"device.attributes['resource.kubernetes.io'].pciBusID == '{pci}'"
    return request(device_class=device_class, selectors=[{"cel": {"expression": expression}}])


def start_vm(driver: DriverNode, namespace: str, name: str, gpu: int) -> None:
    """A pod that has a GPU as a virtual machine would."""
    template(driver.cluster, namespace, name, at(driver, gpu, VFIO))
    start(driver.cluster, namespace, pod_of(name, name))


def start_container(driver: DriverNode, namespace: str, name: str, gpu: int) -> None:
    """A pod that computes on a GPU."""
    template(driver.cluster, namespace, name, at(driver, gpu, "gpu.nvidia.com"))
    driver.cluster.api.create(pod_of(name, name), namespace)


def vfio_nodes(cluster: Cluster, namespace: str, pod: str) -> list[str]:
    """The nodes of vfio and of the IOMMU that a pod got."""
    nodes = cluster.container(pod, namespace).device_nodes
    return [node for node in nodes if node.startswith(("/dev/vfio/", "/dev/iommu"))]


def group_of(driver: DriverNode, pci: PciAddress) -> str:
    """The number of a GPU's IOMMU group."""
    return (driver.folder / "sys/bus/pci/devices" / str(pci) / "iommu_group").resolve().name


def test_a_pod_gets_the_nodes_of_vfio_and_afterwards_a_container_has_the_gpu(
    driver: DriverNode, namespace: str
) -> None:
    cluster, first = driver.cluster, min(driver.machine.state.gpus)
    start_vm(driver, namespace, "vm", 0)

    assert vfio_nodes(cluster, namespace, "vm") == [f"/dev/vfio/{group_of(driver, first)}", "/dev/vfio/vfio"]
    assert gpu_nodes(cluster, namespace, "vm") == []
    variable = f"PCI_RESOURCE_GPU_NVIDIA_COM_{allocated(claim_of(cluster, namespace, 'vm'))[0]}"
    found = cluster.container("vm", namespace).env
    assert found[variable.upper().replace("-", "_")] == str(first)
    wait_drivers(driver, 0)
    wait_told(driver, namespace, "vm")

    # The scheduler keeps the GPU from containers, and gives it to one when the virtual machine is gone.
    start_container(driver, namespace, "compute", 0)
    wait_unschedulable(cluster, namespace, "compute")
    end(cluster, namespace, "vm")
    wait_running(cluster, namespace, "compute")

    wait_drivers(driver)
    minor = driver.machine.state.gpus[first].minor
    assert gpu_nodes(cluster, namespace, "compute") == [f"/dev/nvidia{minor}"]


def wait_told(driver: DriverNode, namespace: str, pod: str) -> None:
    """Wait until the status of the pod's claim says how its GPU is reached."""

    def told(claim: Object) -> bool:
        devices = (claim.get("status") or {}).get("devices") or ()
        return any("/dev/vfio/vfio" in (one.get("data") or {}).get("nodes", ()) for one in devices)

    name = claim_of(driver.cluster, namespace, pod)["metadata"]["name"]
    wait_for(driver.cluster.api, paths.resource_claim(name, namespace), told, 60)


@pytest.mark.parametrize(
    "sample", sorted(path.stem for path in SAMPLES.glob("*.yaml") if "fabric" not in path.stem)
)
def test_each_sample_gets_what_it_asks_for(driver: DriverNode, namespace: str, sample: str) -> None:
    cluster = driver.cluster
    for made in yaml.safe_load_all((SAMPLES / f"{sample}.yaml").read_text()):
        if made["kind"] == "Pod":
            made["spec"]["terminationGracePeriodSeconds"] = 0
            for container in made["spec"]["containers"]:
                container.pop("command")
                container["resources"] = {"claims": container["resources"]["claims"]}
                container |= {"image": "localhost/busybox:1", "imagePullPolicy": "Never"}
        cluster.api.create(made, namespace)
    wait_running(cluster, namespace, sample)

    nodes = vfio_nodes(cluster, namespace, sample)
    assert ("/dev/iommu" in nodes) == (sample == "iommufd")
    assert len(nodes) == (3 if sample == "qemu-two-gpus" else 2)
    end(cluster, namespace, sample)
    wait_drivers(driver)
