"""Hosts of vGPUs: virtual machines get vGPUs of the profiles that they ask for, or wait."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.clusters import Cluster, DriverNode, fresh_namespace, paths
from tests.eventually import eventually
from tests.flow.claims import CLASS, request, start, wait_unschedulable
from tests.flow.mig_scene import end, pod_of, template
from tests.flow.several_machines import installed_on
from tests.flow.told_scene import assert_told_alike
from tests.gpus import MadeVgpu, PciAddress, bound_driver, made_on

L40S, A30 = range(2)
MACHINES = ("vgpu-host-l40s", "vgpu-and-passthrough")
CLASSES = ("gpu", "vfio", "vgpu")
RULES = """version: v1
rules:
  - {when: gpu.pciBusID == "0000:81:00.0", offer: passthrough}
  - vgpu: {profiles: [L40S-8Q, L40S-24Q, A30-12C]}
"""
PASSED_THROUGH = PciAddress.parse("0000:81:00.0")
TYPES = {"L40S-8Q": 1152, "L40S-24Q": 1155, "A30-12C": 687}


@dataclass(frozen=True, slots=True)
class Hosts:
    """A cluster of hosts, each with the driver on it."""

    cluster: Cluster
    drivers: tuple[DriverNode, ...]

    def made(self, host: int) -> dict[str, MadeVgpu]:
        """The vGPUs that a host's kernel shows, by the address of their functions."""
        sysfs = self.drivers[host].folder / "sys"
        functions = [PciAddress.parse(one.name) for one in (sysfs / "bus/pci/devices").iterdir()]
        return {str(pci): vgpu for pci in functions for vgpu in made_on(sysfs, pci)}

    def wait_made(self, host: int, *profiles: str) -> None:
        """Wait until a host has exactly vGPUs of these profiles."""
        wanted = sorted(TYPES[profile] for profile in profiles)

        def types() -> list[int]:
            return sorted(one.type_id for one in self.made(host).values())

        eventually(f"vGPUs of the types {wanted}", types, lambda made: made == wanted)

    def start(self, namespace: str, name: str, profile: str, *, runs: bool = True) -> None:
        """Start a pod with a vGPU of a profile, until it runs, or until the scheduler has no place for it."""
        asks = f"device.attributes['{CLASS}'].profile == '{profile}'"
        wanted = request(device_class="vgpu.gpu.nvidia.com", selectors=[{"cel": {"expression": asks}}])
        template(self.cluster, namespace, name, wanted)
        if runs:
            start(self.cluster, namespace, pod_of(name, name))
            return
        self.cluster.api.create(pod_of(name, name), namespace)
        wait_unschedulable(self.cluster, namespace, name)


@pytest.fixture(scope="module")
def hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """Two hosts in a cluster of their own: each framework once."""
    with installed_on(request.config, MACHINES, CLASSES, RULES) as (cluster, drivers):
        yield Hosts(cluster, drivers)


@pytest.fixture
def namespace(hosts: Hosts) -> Iterator[str]:
    """A namespace for one test; when it ends, no host has a vGPU any more."""
    with fresh_namespace(hosts.cluster.api) as name:
        yield name
        pods = [
            str(pod["metadata"]["name"]) for pod in hosts.cluster.api.list_objects(paths.pod(namespace=name))
        ]
        end(hosts.cluster, name, *pods)
    hosts.wait_made(L40S)
    hosts.wait_made(A30)


def test_a_virtual_machine_gets_its_virtual_function_and_gives_it_back(hosts: Hosts, namespace: str) -> None:
    hosts.start(namespace, "vm", "L40S-8Q")

    ((function, vgpu),) = hosts.made(L40S).items()
    assert vgpu.type_id == TYPES["L40S-8Q"]
    data = assert_told_alike(hosts.drivers[L40S], namespace, "vm", "VgpuMade")
    assert (data["profile"], data["pciBusID"]) == ("L40S-8Q", function)
    sysfs = hosts.drivers[L40S].folder / "sys"
    group = (sysfs / "bus/pci/devices" / function / "iommu_group").resolve().name
    container = hosts.cluster.container("vm", namespace)
    assert [node for node in container.device_nodes if "nvidia" in node] == []
    assert f"/dev/vfio/{group}" in container.device_nodes
    assert function in container.env.values()
    assert bound_driver(sysfs, PciAddress.parse(function)) == "nvidia"

    end(hosts.cluster, namespace, "vm")
    hosts.wait_made(L40S)


def test_one_gpu_of_a_host_is_passed_through_and_the_other_has_vgpus(hosts: Hosts, namespace: str) -> None:
    sysfs = hosts.drivers[A30].folder / "sys"
    for number in range(2):
        hosts.start(namespace, f"vm-{number}", "A30-12C")
    template(hosts.cluster, namespace, "whole", request(device_class="vfio.gpu.nvidia.com"))
    start(hosts.cluster, namespace, pod_of("whole", "whole"))

    hosts.wait_made(A30, "A30-12C", "A30-12C")
    assert bound_driver(sysfs, PASSED_THROUGH) == "vfio-pci"
    data = assert_told_alike(hosts.drivers[A30], namespace, "vm-0", "VgpuMade")
    assert data["profile"] == "A30-12C"
    assert data["mdevUUID"] in {one.uuid for one in hosts.made(A30).values()}
    assert_told_alike(hosts.drivers[A30], namespace, "whole", "BoundToVfio")
    uuids = {one.uuid for one in hosts.made(A30).values()}
    told = {
        value for pod in ("vm-0", "vm-1") for value in hosts.cluster.container(pod, namespace).env.values()
    }
    assert uuids <= told
    hosts.start(namespace, "vm-2", "A30-12C", runs=False)

    # A container finds no GPU on any host.
    template(hosts.cluster, namespace, "compute", request())
    hosts.cluster.api.create(pod_of("compute", "compute"), namespace)
    wait_unschedulable(hosts.cluster, namespace, "compute")
