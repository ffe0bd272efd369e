"""Pytest fixtures: clusters and API servers for the whole run or for single tests, and namespaces."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from envtest.client.waiting import fresh_namespace
from envtest.real.api_server import RealApiServer, api_server_alone
from envtest.real.assets import find_assets
from envtest.real.build import DEFAULT_KUBERNETES, VERSIONS
from envtest.real.cluster import RealCluster
from envtest.real.startup import start_cluster as start
from gpuctl.demo.driver_node import DriverNode
from tools.testbed.driver_image import driver_image as image_of_the_driver
from tools.testbed.memory_hook import memory_hook

# Logs that say little about why a driver's test failed.
QUIET_LOGS = frozenset({"audit", "etcd", "kube-apiserver", "kube-controller-manager", "supervisor"})
STARTED_CLUSTERS = pytest.StashKey[list[RealCluster]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --kubernetes."""
    parser.addoption(
        "--kubernetes",
        choices=list(VERSIONS),
        default=DEFAULT_KUBERNETES,
        help=f"Kubernetes minor version of the clusters (default {DEFAULT_KUBERNETES})",
    )


@pytest.fixture(scope="session")
def kubernetes(request: pytest.FixtureRequest) -> str:
    """The Kubernetes minor version of all clusters of this run, such as 1.37."""
    return str(request.config.getoption("--kubernetes"))


@pytest.fixture(scope="session")
def real_cluster(kubernetes: str, request: pytest.FixtureRequest) -> Generator[RealCluster, None, None]:
    """A cluster with one node for the whole run; each test uses a namespace of its own."""
    with start(kubernetes=kubernetes, audit=True) as cluster:
        request.config.stash.setdefault(STARTED_CLUSTERS, []).append(cluster)
        yield cluster
        request.config.stash[STARTED_CLUSTERS].remove(cluster)


@pytest.fixture(scope="session")
def real_api_server(kubernetes: str) -> Generator[RealApiServer, None, None]:
    """etcd and kube-apiserver for the whole run, without anything else of Kubernetes; needs no root."""
    with api_server_alone(find_assets(kubernetes)) as server:
        yield server


@pytest.fixture(scope="session")
def driver_image() -> Path:
    """An archive of the image of this checkout, ``localhost/gpu-dra:test``, for ``import_image``."""
    return image_of_the_driver()


@pytest.fixture(scope="session")
def driver_launcher() -> tuple[str, ...]:
    """The command that starts the driver's packages (see DriverNode); a conftest may override it."""
    return ()


@pytest.fixture(scope="session")
def real_driver(real_cluster: RealCluster, driver_launcher: tuple[str, ...]) -> DriverNode:
    """The driver on the node of ``real_cluster``, over eight fake H100, running and registered."""
    driver = DriverNode.install(real_cluster, launcher=driver_launcher, memory_hook=memory_hook())
    driver.start_plugin()
    driver.start_controller()
    driver.start_mps()
    driver.wait_serving()
    return driver


@pytest.fixture
def start_cluster(
    kubernetes: str, request: pytest.FixtureRequest
) -> Generator[Callable[[int], RealCluster], None, None]:
    """A function that starts a cluster for this test alone with so many nodes (1 to 4)."""
    with ExitStack() as clusters:
        started = request.config.stash.setdefault(STARTED_CLUSTERS, [])

        def start_one(node_count: int = 1) -> RealCluster:
            cluster = clusters.enter_context(start(node_count, kubernetes, audit=True))
            started.append(cluster)
            clusters.callback(started.remove, cluster)
            return cluster

        yield start_one


@pytest.fixture
def namespace(real_cluster: RealCluster) -> Generator[str, None, None]:
    """A namespace of ``real_cluster`` for one test; its pods and claims are removed when the test ends."""
    with fresh_namespace(real_cluster.api) as name:
        yield name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the ends of the clusters' logs to the report of a failure: they are deleted with the clusters."""
    report = yield
    if report.failed:
        for cluster in item.config.stash.get(STARTED_CLUSTERS, []):
            for name in sorted(set(cluster.processes.names()) - QUIET_LOGS):
                title = f"end of {name}.log in {cluster.folder}"
                report.sections.append((title, cluster.processes.log_tail(name)))
    return report
