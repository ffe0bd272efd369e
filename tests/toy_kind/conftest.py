"""A node of fake GPUs whose driver knows toys as well, and has two of them."""

from collections.abc import Iterator

import pytest

from envtest.client.waiting import fresh_namespace
from envtest.cluster import Cluster
from envtest.embedded.cluster import EmbeddedCluster
from gpuctl.demo.driver_node import DriverNode
from tests import fork_server
from tests.flow.conftest import TIMES
from tests.flow.mig_scene import kind, wait_offered
from tests.toy_kind.launcher import WITH_TOYS

TOY_CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "toy.example.com"},
    "spec": {
        "selectors": [
            {
                "cel": {
                    "expression": "device.driver == 'gpu.nvidia.com' && "
                    "device.attributes['gpu.nvidia.com'].type == 'toy'"
                }
            }
        ]
    },
}


@pytest.fixture(scope="session")
def toy_driver() -> Iterator[DriverNode]:
    """The driver with toys, on a node of an embedded cluster."""
    with EmbeddedCluster(times=TIMES, start=fork_server.start) as cluster:
        driver = DriverNode.install(cluster, machine="a30-quad", launcher=WITH_TOYS)
        rules = driver.folder / "rules.yaml"
        rules.write_text("version: v1\nrules: [{toys: 2}]\n")
        driver.start_plugin()
        driver.start_controller("--config", str(rules))
        cluster.api.create(TOY_CLASS)
        wait_offered(driver, lambda devices: [kind(one) for one in devices] == ["gpu"] * 4 + ["toy"] * 2)
        yield driver


@pytest.fixture
def cluster(toy_driver: DriverNode) -> Cluster:
    """The cluster that the driver runs on."""
    return toy_driver.cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the cluster for one test; its pods and claims are gone when it ends."""
    with fresh_namespace(cluster.api) as name:
        yield name
