"""Fixtures of the tests on the real API server, beside which nothing else of Kubernetes runs."""

import http.client
import uuid
from collections.abc import Generator
from functools import partial
from pathlib import Path

import pytest

from envtest.client.api import Object
from tests.api.written import event_of, slice_of
from tests.clusters import DRIVER_NAMESPACE, ApiClient, ApiRefused, RealApiServer, objects_in, paths
from tests.eventually import eventually

pytest_plugins = ["tools.testbed.fixtures"]

PROJECT = Path(__file__).resolve().parents[2]
MANIFESTS = ("deploy/rbac.yaml", "deploy/admission-policy.yaml", "deviceclasses/gpu.yaml")


@pytest.fixture(scope="session")
def api_server(real_api_server: RealApiServer) -> RealApiServer:
    """The API server with the driver's rights, policies and classes, the policies in force."""
    real_api_server.api.apply([one for file in MANIFESTS for one in objects_in(PROJECT / file)])
    controller = real_api_server.api_as(
        real_api_server.mint_token(DRIVER_NAMESPACE, "gpu-dra-controller", "node-0")
    )
    for path, written, said in (
        (paths.resource_slice(), slice_of("elsewhere"), "spec.nodeName"),
        (paths.event(), event_of("elsewhere"), "reports itself"),
    ):
        refused = partial(_refusal, controller, path, written, said)
        eventually(f"the policy refuses: {said}", refused)
    return real_api_server


def _refusal(controller: ApiClient, path: str, written: Object, said: str) -> str | None:
    """Why the API server keeps a driver from writing for a foreign node; None while it does not."""
    try:
        controller.request("POST", path, written, query={"dryRun": "All"})
    except ApiRefused as error:
        forbidden = error.status == http.client.FORBIDDEN and said in str(error)
        return str(error) if forbidden else None
    return None


@pytest.fixture
def namespace(api_server: RealApiServer) -> str:
    """A new namespace for one test."""
    return new_namespace(api_server.api)


def new_namespace(api: ApiClient, **labels: str) -> str:
    """The name of a new namespace, which pods can be created in; it stays until the API server ends."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    # A controller would make it.
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}, name)
    return name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that is skipped: no other test proves the same."""
    report = yield
    if report.skipped:
        report.outcome = "failed"
    return report
