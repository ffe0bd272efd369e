"""Nodes that are virtual machines: vGPUs and GPUs in passthrough, side by side in one cluster."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from tests.clusters import Cluster, DriverNode, Object, commands, fresh_namespace, paths, wait_for_list
from tests.eventually import eventually
from tests.flow.claims import (
    CLASS,
    allocated,
    claim_of,
    gpu_nodes,
    gpu_pod,
    make_template,
    request,
    start,
    wait_published,
    wait_running,
    wait_unschedulable,
)
from tests.flow.several_machines import installed_on
from tests.gpus import TAINT_UNLICENSED

FOUR_VGPUS, HALF, OTHER_HALF, PASSED_THROUGH = range(4)
MACHINES = ("a100-vgpu-guest-quad", "a30-vgpu-guest", "a30-vgpu-guest", "a30-passthrough-guest")
"""A machine with four vGPUs; two with a half of the same A30 each; one that has A30s passed through."""


@dataclass(frozen=True, slots=True)
class Guests:
    """A cluster of virtual machines, each with the driver on it."""

    cluster: Cluster
    drivers: tuple[DriverNode, ...]

    def attributes(self, machine: int) -> list[Object]:
        """What a machine publishes of each of its GPUs."""
        (stored,) = wait_published(self.drivers[machine])
        return [
            {name: next(iter(value.values())) for name, value in device["attributes"].items()}
            for device in stored["spec"]["devices"]
        ]

    def node_of(self, pod: str, namespace: str) -> int:
        """The machine that a pod runs on."""
        name = self.cluster.api.get(paths.pod(pod, namespace))["spec"]["nodeName"]
        return [node.name for node in self.cluster.nodes].index(name)

    def explained(self, pod: str, namespace: str) -> Object:
        """What ``gpuctl explain`` says of a pod."""
        where = ("-n", namespace, "--kubeconfig", str(self.cluster.admin), "-o", "json")
        result = CliRunner().invoke(commands, ["explain", "pod", pod, *where], catch_exceptions=False)
        told: Object = json.loads(result.output)
        return told

    def wait_waiting(self, pod: str, namespace: str) -> str:
        """Wait until the scheduler has no place for a pod; the reasons that ``gpuctl explain`` gives."""
        wait_unschedulable(self.cluster, namespace, pod)
        told = self.explained(pod, namespace)
        assert told["verdict"] == "waits"
        return json.dumps(told)


@pytest.fixture(scope="module")
def guests(request: pytest.FixtureRequest) -> Iterator[Guests]:
    """Four virtual machines in a cluster of their own."""
    with installed_on(request.config, MACHINES) as (cluster, drivers):
        yield Guests(cluster, drivers)


@pytest.fixture
def namespace(guests: Guests) -> Iterator[str]:
    """A namespace for one test; its pods and claims are gone when it ends, and all vGPUs have licenses."""
    with fresh_namespace(guests.cluster.api) as name:
        yield name
    set_licenses(guests, licensed=True)


def of_profile(profile: str) -> Object:
    """The request for a vGPU of a profile."""
    asks = f"device.attributes['{CLASS}'].?vgpuProfile.orValue('') == '{profile}'"
    return request(selectors=[{"cel": {"expression": asks}}])


def set_licenses(guests: Guests, *, licensed: bool) -> None:
    """Give the four vGPUs of the first machine their licenses, or take them away; return once it is told."""
    driver = guests.drivers[FOUR_VGPUS]
    for index in range(4):
        driver.machine.set_license(index, licensed=licensed)

    def told(slices: list[Object]) -> bool:
        devices = [device for stored in slices for device in stored["spec"]["devices"]]
        keys = [[taint["key"] for taint in device.get("taints", ())] for device in devices]
        return keys == [[] if licensed else [TAINT_UNLICENSED]] * 4

    selector = f"spec.nodeName={driver.node.name},spec.driver={CLASS}"
    wait_for_list(guests.cluster.api, paths.resource_slice(), told, 30, fieldSelector=selector)


def test_a_machine_with_four_vgpus_serves_four_pods_and_the_fifth_waits(
    guests: Guests, namespace: str
) -> None:
    make_template(guests.cluster, namespace, of_profile("A100-40C"))
    names = [f"pod-{index}" for index in range(5)]
    for name in names[:4]:
        guests.cluster.api.create(gpu_pod(name), namespace)
    for name in names[:4]:
        wait_running(guests.cluster, namespace, name)

    seen = [gpu_nodes(guests.cluster, namespace, name) for name in names[:4]]
    assert sorted(seen) == [[f"/dev/nvidia{minor}"] for minor in range(4)]
    assert {guests.node_of(name, namespace) for name in names[:4]} == {FOUR_VGPUS}
    guests.cluster.api.create(gpu_pod(names[4]), namespace)
    reasons = guests.wait_waiting(names[4], namespace)
    assert "in use" in reasons or "taken" in reasons, reasons
    guests.cluster.api.delete(paths.pod(names[1], namespace))
    wait_running(guests.cluster, namespace, names[4])
    assert gpu_nodes(guests.cluster, namespace, names[4]) == seen[1]


def test_two_machines_that_share_a_gpu_serve_a_pod_each_at_once(guests: Guests, namespace: str) -> None:
    make_template(guests.cluster, namespace, of_profile("A30-2-12C"))
    for name in ("one", "other"):
        start(guests.cluster, namespace, gpu_pod(name))

    assert {guests.node_of(name, namespace) for name in ("one", "other")} == {HALF, OTHER_HALF}
    for name in ("one", "other"):
        assert gpu_nodes(guests.cluster, namespace, name) == ["/dev/nvidia0"]
        assert allocated(claim_of(guests.cluster, namespace, name)) == ["gpu-0000-02-00-0"]
    guests.cluster.api.create(gpu_pod("third"), namespace)
    guests.wait_waiting("third", namespace)


def test_an_unlicensed_machine_takes_no_pod_until_it_has_its_license(guests: Guests, namespace: str) -> None:
    make_template(guests.cluster, namespace, of_profile("A100-40C"))
    start(guests.cluster, namespace, gpu_pod("before"))

    set_licenses(guests, licensed=False)
    guests.cluster.api.create(gpu_pod("waiting"), namespace)
    reasons = guests.wait_waiting("waiting", namespace)

    assert TAINT_UNLICENSED in reasons
    assert guests.cluster.api.get(paths.pod("before", namespace))["status"]["phase"] == "Running"

    def events() -> set[str]:
        return {one["reason"] for one in guests.cluster.api.list_objects(paths.event())}

    eventually("an event tells of it", events, lambda told: "VgpuUnlicensed" in told)
    set_licenses(guests, licensed=True)
    wait_running(guests.cluster, namespace, "waiting")
    assert guests.node_of("waiting", namespace) == FOUR_VGPUS
