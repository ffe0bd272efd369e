"""Every GPU offers itself whole and cut, and the scheduler decides what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from envtest.client import paths
from envtest.client.waiting import wait_for
from gpuctl.demo.driver_node import DriverNode
from tests.flow.claims import (
    allocated,
    claim_of,
    gpu_nodes,
    gpu_pod,
    make_template,
    request,
    start,
    wait_released,
    wait_running,
)
from tests.flow.metrics import metrics_text, serve_metrics
from tests.flow.mig_scene import (
    SAMPLES,
    configured,
    create_sample,
    cut,
    end,
    handle,
    kind,
    partition_nodes,
    pod_of,
    profile,
    template,
    wait_cut,
    wait_offered,
)

DYNAMIC = "version: v1\nrules:\n  - mig: dynamic\n"
FIRST_DYNAMIC = "version: v1\nrules:\n  - when: gpu.index == 0\n    mig: dynamic\n"
LAYOUT = "version: v1\nrules:\n  - when: gpu.index == 0\n    mig:\n      layout: {layout}\n"

Object = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def _configured(installed_driver: DriverNode) -> Iterator[None]:
    with configured(installed_driver, DYNAMIC):
        wait_offered(installed_driver, lambda devices: "mig" in map(kind, devices))
        yield


@pytest.mark.parametrize("sample", sorted(path.stem for path in SAMPLES.glob("*.yaml")))
def test_each_sample_gets_what_it_asks_for_and_leaves_nothing(
    driver: DriverNode, namespace: str, sample: str
) -> None:
    cluster = driver.cluster
    pods = create_sample(cluster, namespace, sample)
    for pod in pods:
        wait_running(cluster, namespace, pod["metadata"]["name"])
    claims = cluster.api.list_objects(paths.resource_claim(namespace=namespace))
    devices = [device for claim in claims for device in allocated(claim)]
    partitions = [device for device in devices if "-mig-" in device]
    assert partitions
    assert sum(map(len, cut(driver).values())) == len(partitions)
    if sample == "same-parent":
        assert len(cut(driver)) == 1
    if sample == "distinct-parents":
        assert len(cut(driver)) == len(partitions) == 2

    end(cluster, namespace, *(pod["metadata"]["name"] for pod in pods))
    wait_cut(driver, {})


def test_a_container_sees_its_instance_and_not_the_drm_nodes_of_the_gpu(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    make_template(cluster, namespace, profile("1g.10gb"))
    start(cluster, namespace, gpu_pod("train"))
    nodes = partition_nodes(cluster, namespace, "train")
    assert len(nodes) == 3
    assert [node.startswith("/dev/nvidia-caps/nvidia-cap") for node in nodes] == [True, True, False]


def test_partitions_fill_the_first_gpu_and_whole_gpus_come_from_the_end(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    template(cluster, namespace, "small", profile("1g.10gb"))
    template(cluster, namespace, "large", profile("3g.40gb"))
    template(cluster, namespace, "whole", request())
    for name in ("whole", "large", "small"):
        start(cluster, namespace, pod_of(name, name))
    assert cut(driver) == {0: [(3, 1), (4, 4)]}, "room for 2g at 0 is kept"
    last = max(driver.machine.state.gpus)
    assert gpu_nodes(cluster, namespace, "whole") == [f"/dev/nvidia{driver.machine.state.gpus[last].minor}"]


def test_a_partition_that_a_process_holds_is_tainted_and_goes_when_it_ends(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    make_template(cluster, namespace, profile("1g.10gb"))
    start(cluster, namespace, gpu_pod("train"))
    claim = claim_of(cluster, namespace, "train")
    (device,) = allocated(claim)
    (instance,) = driver.machine.state.gpus[min(driver.machine.state.gpus)].mig.instances
    (uuid,) = {found.uuid for found in _mig_devices(driver)}
    driver.machine.set_processes(uuid, (4242,))

    cluster.api.delete(paths.pod("train", namespace))
    devices = wait_offered(
        driver, lambda listed: any(one["name"] == device and kind(one) == "mig tainted" for one in listed)
    )
    blocked = {one["name"] for one in devices if kind(one).endswith("tainted")}
    assert device in blocked
    assert len(blocked) > 1, "the whole GPU and every partition that overlaps wait as well"
    assert instance.placement.start == 6

    driver.machine.set_processes(uuid, ())
    wait_cut(driver, {})
    wait_released(driver, claim["metadata"]["uid"])
    wait_offered(driver, lambda listed: not any(kind(one).endswith("tainted") for one in listed))


def test_partitions_survive_restarts_of_plugin_and_controller(driver: DriverNode, namespace: str) -> None:
    cluster = driver.cluster
    make_template(cluster, namespace, profile("1g.10gb"))
    start(cluster, namespace, gpu_pod("train"))
    before = cut(driver)
    driver.process("kubeletplugin").kill()
    driver.start_plugin()
    driver.wait_serving()
    start(cluster, namespace, gpu_pod("second"))
    assert before[0][0] in cut(driver)[0]
    assert len(cut(driver)[0]) == 2
    end(cluster, namespace, "train", "second")
    wait_cut(driver, {})


def test_the_status_of_a_running_pods_claim_tells_the_uuid_of_its_partition(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    make_template(cluster, namespace, profile("1g.10gb"))
    start(cluster, namespace, gpu_pod("train"))
    claim = _told(driver, namespace, "train")
    (told,) = claim["status"]["devices"]
    (made,) = _mig_devices(driver)
    assert [told["device"]] == allocated(claim)
    assert told["data"] == {
        "uuid": made.uuid,
        "pciBusID": str(min(driver.machine.state.gpus)),
        "parentUUID": handle(driver, 0).uuid(),
        "profile": "1g.10gb",
    }
    assert [(one["type"], one["status"]) for one in told["conditions"]] == [("Ready", "True")]


def test_the_status_is_written_again_after_a_restart_of_the_plugin(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    make_template(cluster, namespace, profile("1g.10gb"))
    start(cluster, namespace, gpu_pod("train"))
    claim = _told(driver, namespace, "train")
    told = claim["status"].pop("devices")
    path = paths.resource_claim(claim["metadata"]["name"], namespace)
    driver.process("kubeletplugin").kill()
    cluster.api.replace(f"{path}/status", claim)
    assert "devices" not in cluster.api.get(path)["status"]
    driver.start_plugin()
    driver.wait_serving()
    (again,) = _told(driver, namespace, "train")["status"]["devices"]
    assert again["data"] == told[0]["data"]


def test_the_metrics_name_the_partition_of_a_claim_until_it_is_released(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    address = serve_metrics(driver, "kubeletplugin")
    driver.wait_serving()
    make_template(cluster, namespace, profile("1g.10gb"))
    start(cluster, namespace, gpu_pod("train"))
    claim = claim_of(cluster, namespace, "train")["metadata"]
    (made,) = _mig_devices(driver)
    (line,) = _partition_lines(address)
    for label in (
        f'claim_namespace="{namespace}"',
        f'claim="{claim["name"]}"',
        f'uuid="{made.uuid}"',
        f'parent_uuid="{handle(driver, 0).uuid()}"',
    ):
        assert label in line
    end(cluster, namespace, "train")
    wait_released(driver, claim["uid"])
    assert _partition_lines(address) == []


def _partition_lines(address: str) -> list[str]:
    lines = metrics_text(address).splitlines()
    return [line for line in lines if line.startswith("gpu_dra_partition_info{")]


def _told(driver: DriverNode, namespace: str, pod: str) -> Object:
    """A pod's claim once its status tells of devices."""
    name = claim_of(driver.cluster, namespace, pod)["metadata"]["name"]
    path = paths.resource_claim(name, namespace)
    return wait_for(driver.cluster.api, path, lambda stored: bool(stored["status"].get("devices")))


def _mig_devices(driver: DriverNode) -> list[Any]:
    nvml = driver.machine.nvml()
    nvml.init()
    return [
        found for pci in sorted(driver.machine.state.gpus) for found in nvml.device_by_pci(pci).mig_devices()
    ]
