"""Fixtures of the tests that run on either kind of cluster; ``--cluster real`` needs root."""

from collections.abc import Iterator

import pytest

from tests import fork_server
from tests.clusters import BRISK, Cluster, DriverNode, EmbeddedCluster, KubeletTimes, fresh_namespace
from tests.flow.claims import restored

# The real kubelet looks for sockets every second, tries a failed unprepare again after ten seconds, a failed
# prepare after a minute.
TIMES = KubeletTimes(scan=0.1, unprepare_retry=0.3, prepare_retry=(0.5, 1.0))


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add --cluster, and --kubernetes of the real one; where this is called too late, embedded it is."""
    pluginmanager.import_plugin("tools.testbed.fixtures")
    parser.addoption(
        "--cluster",
        choices=("embedded", "real"),
        default="embedded",
        help="where the flow tests run (default embedded)",
    )


@pytest.fixture(scope="session")
def installed_driver(request: pytest.FixtureRequest) -> Iterator[DriverNode]:
    """The driver on the node of the cluster of this run, over eight fake H100."""
    if request.config.getoption("--cluster", default="embedded") == "real":
        driver: DriverNode = request.getfixturevalue("real_driver")
        yield driver
        return
    with EmbeddedCluster(times=TIMES, start=fork_server.start) as cluster:
        driver = DriverNode.install(cluster, launcher=BRISK)
        driver.start_plugin()
        driver.start_controller()
        driver.start_mps()
        yield driver
        driver.end_mps()


@pytest.fixture
def driver(installed_driver: DriverNode) -> Iterator[DriverNode]:
    """The driver, running and publishing, with all its GPUs healthy; whatever a test does to it is undone."""
    restored(installed_driver)
    yield installed_driver
    restored(installed_driver)


@pytest.fixture
def cluster(driver: DriverNode) -> Cluster:
    """The cluster that the driver runs on."""
    return driver.cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the cluster for one test; its pods and claims are gone when it ends."""
    with fresh_namespace(cluster.api) as name:
        yield name
