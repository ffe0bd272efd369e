"""One node offers its GPUs whole, cut, shared and to virtual machines, and the scheduler decides."""

from collections.abc import Iterator

import pytest

from tests.clusters import PACKAGE_ROOT, DriverNode, Object
from tests.flow.claims import allocated, claim_of, gpu_nodes, request, start, wait_running, wait_unschedulable
from tests.flow.mig_scene import configured, end, kind, pod_of, profile, template, wait_offered
from tests.flow.test_passthrough import VFIO, vfio_nodes, wait_drivers
from tests.flow.told_scene import assert_told_alike
from tests.gpus import PciAddress, bound_driver, parse_gpu_device_name, unshared_name

RULES = (PACKAGE_ROOT / "deploy/examples/node-config/all-kinds.yaml").read_text()
TYPES = {"gpu", "mig", "shared", "vfio"}
READY = {
    "whole": "GpuReady",
    "partition": "PartitionMade",
    "share": "ShareReady",
    "limited": "ShareReady",
    "machine": "BoundToVfio",
}


@pytest.fixture(scope="module", autouse=True)
def _configured(installed_driver: DriverNode) -> Iterator[None]:
    api = installed_driver.cluster.api
    for classes in ("deviceclasses/vfio.yaml", "deviceclasses/tiers.yaml"):
        api.apply(PACKAGE_ROOT / classes)
    with configured(installed_driver, RULES):
        wait_offered(installed_driver, lambda devices: set(map(kind, devices)) == TYPES)
        yield


def place(driver: DriverNode, namespace: str, pod: str) -> int:
    """The GPU, by its place on the bus, on which the device of a pod's claim lies."""
    (device,) = allocated(claim_of(driver.cluster, namespace, pod))
    gpus = sorted(driver.machine.state.gpus)
    return next(gpus.index(pci) for pci in gpus if unshared_name(device).startswith(_name(pci)))


def _name(pci: PciAddress) -> str:
    name = f"gpu-{str(pci).replace(':', '-').replace('.', '-')}"
    assert parse_gpu_device_name(name) == pci
    return name


def at(driver: DriverNode, gpu: int, asked: Object) -> Object:
    """The request for a device of one GPU, by its place on the bus."""
    pci = sorted(driver.machine.state.gpus)[gpu]
    expression = f"device.attributes['resource.kubernetes.io'].pciBusID == '{pci}'"
    exactly = asked["exactly"]
    selectors = [*exactly.get("selectors", ()), {"cel": {"expression": expression}}]
    return {**asked, "exactly": {**exactly, "selectors": selectors}}


def test_a_node_serves_every_kind_at_once_and_a_gpu_every_kind_in_turn(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    asked = {
        "whole": request(device_class="gpu.nvidia.com"),
        "partition": profile("1g.10gb"),
        "share": request(device_class="shared-timesliced"),
        "limited": request(device_class="shared-mps"),
        "machine": request(device_class=VFIO),
    }
    for name, one in asked.items():
        template(cluster, namespace, name, one)
        start(cluster, namespace, pod_of(name, name))

    # The scheduler found places that exclude each other nowhere, and the node made each what it is.
    places = {name: place(driver, namespace, name) for name in asked}
    assert len(set(places.values())) == 5
    for name, reason in READY.items():
        assert_told_alike(driver, namespace, name, reason)
    wait_drivers(driver, places["machine"])
    assert vfio_nodes(cluster, namespace, "machine")
    for name in ("whole", "partition", "share", "limited"):
        assert gpu_nodes(cluster, namespace, name)
        assert vfio_nodes(cluster, namespace, name) == []

    # The GPU of the partition goes to a virtual machine when the partition has ended, and back to a share.
    gpu = places["partition"]
    template(cluster, namespace, "next-machine", at(driver, gpu, request(device_class=VFIO)))
    cluster.api.create(pod_of("next-machine", "next-machine"), namespace)
    wait_unschedulable(cluster, namespace, "next-machine")
    end(cluster, namespace, "partition")
    wait_running(cluster, namespace, "next-machine")
    wait_drivers(driver, places["machine"], gpu)

    template(cluster, namespace, "next-share", at(driver, gpu, request(device_class="shared-timesliced")))
    cluster.api.create(pod_of("next-share", "next-share"), namespace)
    wait_unschedulable(cluster, namespace, "next-share")
    end(cluster, namespace, "next-machine")
    wait_running(cluster, namespace, "next-share")
    wait_drivers(driver, places["machine"])

    end(cluster, namespace, "whole", "share", "limited", "machine", "next-share")
    wait_drivers(driver)
    first = sorted(driver.machine.state.gpus)[gpu]
    assert bound_driver(driver.folder / "sys", first) == "nvidia"
