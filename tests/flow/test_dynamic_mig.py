"""Every GPU offers itself whole and cut, and the scheduler decides what becomes of it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.clusters import DriverNode, paths
from tests.flow.claims import allocated, claim_of, gpu_pod, make_template, start, wait_released, wait_running
from tests.flow.mig_scene import (
    SAMPLES,
    configured,
    create_sample,
    cut,
    end,
    kind,
    profile,
    wait_cut,
    wait_offered,
)

DYNAMIC = "version: v1\nrules:\n  - mig: dynamic\n"


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


def _mig_devices(driver: DriverNode) -> list[Any]:
    nvml = driver.machine.nvml()
    nvml.init()
    return [
        found for pci in sorted(driver.machine.state.gpus) for found in nvml.device_by_pci(pci).mig_devices()
    ]
