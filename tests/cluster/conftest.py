"""Fixtures of the tests on a real cluster; ``make cluster-test`` runs them, as root."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envtest.client import paths
from envtest.client.api import ApiClient
from envtest.client.errors import ApiRefused
from envtest.client.readiness import wait_until
from envtest.driver_node import DriverNode
from envtest.real.cluster import RealCluster
from tests.cluster.objects import slice_of
from tests.flow.claims import restored

pytest_plugins = ["envtest.real.fixtures"]

PROJECT = Path(__file__).resolve().parents[2]


def install_manifests(cluster: RealCluster) -> None:
    """Give a cluster the driver's rights, policy and classes; return once the policy is in force."""
    for manifest in ("deploy/rbac.yaml", "deploy/admission-policy.yaml", "deviceclasses/gpu.yaml"):
        cluster.api.apply(PROJECT / manifest)
    controller = cluster.api_as(cluster.mint_token("gpu-dra-controller", cluster.nodes[0].name))
    wait_until(["kube-apiserver"], cluster.processes, lambda: True if _is_refused(controller) else None)


def _is_refused(controller: ApiClient) -> bool:
    """Whether the API server keeps a driver from writing a slice of a foreign node."""
    try:
        controller.request("POST", paths.resource_slice(), slice_of("elsewhere"), query={"dryRun": "All"})
    except ApiRefused as error:
        return error.status == http.client.FORBIDDEN and "spec.nodeName" in str(error)
    return False


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
