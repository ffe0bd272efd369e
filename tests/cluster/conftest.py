"""Fixtures of the tests on a real cluster; ``make cluster-test`` runs them, as root."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from envtest.client import paths
from envtest.client.api import ApiClient, Object
from envtest.client.errors import ApiRefused
from envtest.real.assets import find_assets
from envtest.real.cluster import RealCluster
from gpuctl.demo.driver_node import DRIVER_NAMESPACE, DriverNode
from tests.cluster.objects import event_of, slice_of
from tests.eventually import eventually
from tests.flow.claims import restored
from tools.conformance.oracle import Oracle

pytest_plugins = ["tools.testbed.fixtures"]

PROJECT = Path(__file__).resolve().parents[2]


def install_manifests(cluster: RealCluster) -> None:
    """Give a cluster the driver's rights, policies and classes; return once the policies are in force."""
    for manifest in ("deploy/rbac.yaml", "deploy/admission-policy.yaml", "deviceclasses/gpu.yaml"):
        cluster.api.apply(PROJECT / manifest)
    controller = cluster.api_as(
        cluster.mint_token(DRIVER_NAMESPACE, "gpu-dra-controller", cluster.nodes[0].name)
    )
    for path, written, said in (
        (paths.resource_slice(), slice_of("elsewhere"), "spec.nodeName"),
        (paths.event(), event_of("elsewhere"), "reports itself"),
    ):
        refused = partial(_refusal, controller, path, written, said)
        eventually(f"the policy refuses: {said}", refused)


def _refusal(controller: ApiClient, path: str, written: Object, said: str) -> str | None:
    """Why the API server keeps a driver from writing for a foreign node; None while it does not."""
    try:
        controller.request("POST", path, written, query={"dryRun": "All"})
    except ApiRefused as error:
        forbidden = error.status == http.client.FORBIDDEN and said in str(error)
        return str(error) if forbidden else None
    return None


@pytest.fixture(scope="module")
def oracle(kubernetes: str) -> Iterator[Oracle]:
    """Kubernetes' validation and allocator behind a pipe."""
    binary = find_assets(kubernetes).binary("oracle")
    if not binary.exists():
        pytest.skip(f"{binary.parent} holds no oracle: it comes with binaries that are built here")
    with Oracle(binary) as asked:
        yield asked


@pytest.fixture(scope="session")
def install() -> Callable[[RealCluster], None]:
    """Installs the driver's rights, policy and classes into a cluster of the test's own."""
    return install_manifests


@pytest.fixture(scope="session")
def installed_cluster(real_cluster: RealCluster) -> RealCluster:
    """``real_cluster`` with the driver's rights, policy and classes."""
    install_manifests(real_cluster)
    return real_cluster


@pytest.fixture
def driver(real_driver: DriverNode) -> Iterator[DriverNode]:
    """The driver on the node of ``real_cluster``, running and publishing, with all its GPUs healthy."""
    restored(real_driver)
    yield real_driver
    restored(real_driver)
