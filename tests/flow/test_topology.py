"""The samples about topology get GPUs, and cards, that lie as they ask."""

from collections.abc import Callable

import pytest

from tests.clusters import PACKAGE_ROOT, DriverNode, Object, paths
from tests.flow.claims import claim_of, wait_published, wait_released, wait_running
from tests.flow.mig_scene import create_sample
from tools.scenarios.places.network_cards import cards_on

SAMPLES = PACKAGE_ROOT / "deploy" / "examples" / "topology"
RACK = "topology.example.com/rack"
ROOT = "resource.kubernetes.io/pcieRoot"
NUMA = "resource.kubernetes.io/numaNode"
CARDS: dict[str, Object] = {"eth0": {ROOT: {"string": "pci0000:cb"}}}

Devices = dict[str, Object]
"""The attributes of the devices that a pod was given, by name."""


def given(driver: DriverNode, namespace: str, pod: str) -> Devices:
    """What a pod was given, its network card included."""
    published = {
        device["name"]: device["attributes"]
        for stored in wait_published(driver)
        for device in stored["spec"].get("devices") or ()
    }
    results = claim_of(driver.cluster, namespace, pod)["status"]["allocation"]["devices"]["results"]
    return {result["device"]: (published | CARDS)[result["device"]] for result in results}


def same(attribute: str, number: int) -> Callable[[Devices], bool]:
    """Whether there are so many devices, with one value of the attribute."""
    return lambda devices: (
        len(devices) == number and len({str(attributes[attribute]) for attributes in devices.values()}) == 1
    )


ASKED = {
    "linked-gpus": same("nvlinkMesh", 4),
    "one-numa-node": same(NUMA, 2),
    "gpu-and-nic": same(ROOT, 2),
    "one-rack": same("nvlinkDomain", 4),
}


def test_each_sample_says_what_it_asks_for() -> None:
    names = {path.stem for path in SAMPLES.glob("*.yaml")}
    # Gangs need a rack: tests/flow/test_channels.py.
    assert {name for name in names if not name.startswith("nvlink-gang")} == ASKED.keys()


@pytest.mark.parametrize("sample", sorted(ASKED))
def test_each_sample_gets_what_it_asks_for(driver: DriverNode, namespace: str, sample: str) -> None:
    cluster = driver.cluster
    cluster.api.patch(paths.node("node-0"), {"metadata": {"labels": {RACK: "rack-7"}}})
    with cards_on(driver, CARDS):
        pods = [pod["metadata"]["name"] for pod in create_sample(cluster, namespace, sample, SAMPLES)]
        for pod in pods:
            wait_running(cluster, namespace, pod)

        assert [ASKED[sample](given(driver, namespace, pod)) for pod in pods] == [True] * len(pods)
        uids = [claim_of(cluster, namespace, pod)["metadata"]["uid"] for pod in pods]
        for pod in pods:
            cluster.api.delete(paths.pod(pod, namespace))
        for uid in uids:
            wait_released(driver, uid)
    cluster.api.patch(paths.node("node-0"), {"metadata": {"labels": {RACK: None}}})
