"""A kind of device that is written outside of the driver is published, given to pods, and taken back."""

import json

import pytest
from click.testing import CliRunner, Result

from envtest.client import paths
from envtest.client.waiting import wait_for, wait_gone
from envtest.cluster import Cluster, ContainerFacts
from gpuctl.__main__ import commands
from gpuctl.demo.driver_node import DriverNode
from tests.clusters import Object
from tests.eventually import eventually
from tests.flow.claims import (
    allocated,
    claim_of,
    gpu_nodes,
    gpu_pod,
    journal_states,
    make_claim,
    make_template,
    request,
    spec_files,
    start,
    wait_published,
    wait_released,
    wait_running,
)
from tests.flow.mig_scene import offered, restart_controller, wait_offered

TOY = request("toy", "toy.example.com")
HOLDING = {"preparing", "prepared", "releasing"}


def toys_of(facts: ContainerFacts) -> dict[str, str]:
    """The variables that toys have put into a container."""
    return {name: value for name, value in facts.env.items() if name.startswith("TOY_")}


def end(cluster: Cluster, namespace: str, *pods: str) -> None:
    for pod in pods:
        cluster.api.delete(paths.pod(pod, namespace))
        wait_gone(cluster.api, paths.pod(pod, namespace))


def uid_of(claim: Object) -> str:
    return str(claim["metadata"]["uid"])


def gpuctl(cluster: Cluster, *arguments: str) -> Result:
    """What a command of gpuctl says."""
    with_access = [*arguments, "--kubeconfig", str(cluster.admin)]
    return CliRunner().invoke(commands, with_access, catch_exceptions=False)


def test_toys_are_published_behind_the_gpus_as_they_are(toy_driver: DriverNode) -> None:
    devices = offered(toy_driver)

    assert [one["name"] for one in devices][-2:] == ["toy-0", "toy-1"]
    assert devices[-1] == {"name": "toy-1", "attributes": {"type": {"string": "toy"}}}


def test_a_pod_with_a_toy_has_its_variable_and_nothing_of_the_nvidia_driver(
    cluster: Cluster, namespace: str
) -> None:
    make_template(cluster, namespace, TOY)
    start(cluster, namespace, gpu_pod("plays"))

    facts = cluster.container("plays", namespace)

    (toy,) = allocated(claim_of(cluster, namespace, "plays"))
    assert toys_of(facts) == {toy.upper().replace("-", "_"): "wound-up"}
    assert facts.device_nodes == ()
    assert [path.rpartition("/")[2] for path in facts.mounts] == ["gpu.nvidia.com-metadata.json"]


def test_each_toy_is_one_pods_and_who_comes_third_waits(
    toy_driver: DriverNode, cluster: Cluster, namespace: str
) -> None:
    make_template(cluster, namespace, TOY)
    for name in ("first", "second"):
        start(cluster, namespace, gpu_pod(name))
    claims = {name: claim_of(cluster, namespace, name) for name in ("first", "second")}
    assert {device for claim in claims.values() for device in allocated(claim)} == {"toy-0", "toy-1"}
    cluster.api.create(gpu_pod("third"), namespace)

    def waits(pod: Object) -> bool:
        told = {one["type"]: one.get("reason") for one in pod["status"].get("conditions", ())}
        return told.get("PodScheduled") == "Unschedulable"

    wait_for(cluster.api, paths.pod("third", namespace), waits)
    end(cluster, namespace, "first")
    wait_running(cluster, namespace, "third")

    assert allocated(claim_of(cluster, namespace, "third")) == allocated(claims["first"])
    wait_released(toy_driver, uid_of(claims["first"]))


def test_a_gpu_and_a_toy_of_one_claim_come_into_the_container_together(
    cluster: Cluster, namespace: str
) -> None:
    make_template(cluster, namespace, request(), TOY)
    start(cluster, namespace, gpu_pod("both"))

    facts = cluster.container("both", namespace)

    assert len(gpu_nodes(cluster, namespace, "both")) == 1
    assert len(toys_of(facts)) == 1
    assert any("libcuda" in path for path in facts.mounts)


def test_nothing_is_left_when_the_pods_are_gone(
    toy_driver: DriverNode, cluster: Cluster, namespace: str
) -> None:
    make_template(cluster, namespace, request(), TOY)
    start(cluster, namespace, gpu_pod("leaves"))
    uid = uid_of(claim_of(cluster, namespace, "leaves"))
    assert journal_states(toy_driver)[uid] == "prepared"
    assert uid in spec_files(toy_driver)

    end(cluster, namespace, "leaves")
    wait_released(toy_driver, uid)

    def held() -> set[str]:
        return {one for one, state in journal_states(toy_driver).items() if state in HOLDING}

    eventually("nothing is held", held, lambda uids: not uids and not spec_files(toy_driver))


@pytest.mark.parametrize("journal_is_lost", [False, True], ids=["journal kept", "journal lost"])
def test_a_restart_of_the_plugin_keeps_the_toy(
    toy_driver: DriverNode, cluster: Cluster, namespace: str, *, journal_is_lost: bool
) -> None:
    make_claim(cluster, namespace, "kept", TOY)
    start(cluster, namespace, gpu_pod("before", "kept"))
    claim = cluster.api.get(paths.resource_claim("kept", namespace))
    uid = uid_of(claim)

    toy_driver.process("kubeletplugin").stop()
    if journal_is_lost:
        (toy_driver.journal_dir / f"{uid}.json").unlink()
    toy_driver.start_plugin()
    toy_driver.wait_serving()

    (held,) = json.loads((toy_driver.journal_dir / f"{uid}.json").read_text())["entry"]["devices"]
    kind = "lost" if journal_is_lost else "toy"
    assert (held["device"], held["kind"], held["pci"]) == (allocated(claim)[0], kind, "")
    start(cluster, namespace, gpu_pod("after", "kept"))
    assert len(toys_of(cluster.container("after", namespace))) == 1
    end(cluster, namespace, "before", "after")
    wait_released(toy_driver, uid)


def test_a_configuration_that_names_a_toys_request_is_refused_in_words(
    cluster: Cluster, namespace: str
) -> None:
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
    opaque = {"driver": "gpu.nvidia.com", "parameters": parameters}
    devices = {"requests": [request(), TOY], "config": [{"requests": ["toy"], "opaque": opaque}]}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "tuned"}}
    cluster.api.create({**claim, "spec": {"devices": devices}}, namespace)
    cluster.api.create(gpu_pod("tuned", "tuned"), namespace)

    def refused() -> str:
        events = cluster.api.list_objects(f"/api/v1/namespaces/{namespace}/events")
        said = [str(event["message"]) for event in events if event["reason"] == "PrepareFailed"]
        return said[0] if said else ""

    message = eventually("prepare is refused", refused)
    assert "request toy: an opaque configuration applies to a toy, which has no configuration" in message


def test_a_configuration_for_gpus_leaves_a_toy_of_the_same_claim_alone(
    cluster: Cluster, namespace: str
) -> None:
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
    opaque = {"driver": "gpu.nvidia.com", "parameters": parameters}
    devices = {"requests": [request(), TOY], "config": [{"opaque": opaque}]}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "mixed"}}
    cluster.api.create({**claim, "spec": {"devices": devices}}, namespace)

    start(cluster, namespace, gpu_pod("mixed", "mixed"))

    assert len(toys_of(cluster.container("mixed", namespace))) == 1


def test_the_kubelet_hears_how_a_toy_is(cluster: Cluster, namespace: str) -> None:
    make_template(cluster, namespace, TOY)
    start(cluster, namespace, gpu_pod("well"))

    def well(pod: Object) -> bool:
        told = [
            resource["health"]
            for status in pod["status"].get("containerStatuses", ())
            for entry in status.get("allocatedResourcesStatus", ())
            for resource in entry["resources"]
        ]
        return told == ["Healthy"]

    wait_for(cluster.api, paths.pod("well", namespace), well)


def test_gpuctl_shows_a_kind_that_it_does_not_know_as_a_device(
    toy_driver: DriverNode, cluster: Cluster, namespace: str
) -> None:
    make_template(cluster, namespace, TOY)
    for name in ("first", "second"):
        start(cluster, namespace, gpu_pod(name))
    cluster.api.create(gpu_pod("third"), namespace)

    status = gpuctl(cluster, "status", "-o", "json")
    topology = gpuctl(cluster, "plan", "--topology", toy_driver.node.name, "-o", "json")
    explained = gpuctl(cluster, "explain", "pod", "third", "-n", namespace)

    (node,) = json.loads(status.output)["nodes"]
    assert (status.exit_code, node["product"]) == (3, "NVIDIA A30")  # the third pod waits
    assert (node["tiers"]["toy"]["devices"], node["tiers"]["toy"]["allocated"]) == (2, 2)
    assert topology.exit_code == 0
    assert [one["device"] for one in json.loads(topology.output)["gpus"]] == allocatable_gpus(toy_driver)
    assert "toy-0" in explained.output, explained.output


def allocatable_gpus(driver: DriverNode) -> list[str]:
    return [one["name"] for one in offered(driver) if not one["name"].startswith("toy-")]


def test_a_controller_that_starts_anew_finds_the_toys_as_they_are(toy_driver: DriverNode) -> None:
    before = {one["metadata"]["name"]: one["spec"] for one in wait_published(toy_driver)}
    rules = toy_driver.folder / "rules.yaml"

    restart_controller(toy_driver, "--config", str(rules))
    rules.write_text("version: v1\nrules: [{toys: 1}]\n")
    wait_offered(toy_driver, lambda devices: devices[-1]["name"] == "toy-0")
    rules.write_text("version: v1\nrules: [{toys: 2}]\n")
    wait_offered(toy_driver, lambda devices: devices[-1]["name"] == "toy-1")

    after = {one["metadata"]["name"]: one["spec"] for one in wait_published(toy_driver)}
    assert {name: spec["devices"] for name, spec in after.items()} == {
        name: spec["devices"] for name, spec in before.items()
    }
