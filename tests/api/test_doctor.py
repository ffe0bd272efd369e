"""``gpuctl doctor`` finds what is wrong with the driver's rights, policies and webhook."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.api.test_webhook import CONFIGURATIONS, NAME, Webhook
from tests.api.written import slice_of
from tests.clusters import Object, RealApiServer, commands, paths
from tests.eventually import eventually

ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpu-dra-kubeletplugin"
BINDING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/gpu-dra-own-events"


def doctor(kubeconfig: Path, *arguments: str) -> dict[str, Object]:
    """What each check found."""
    words = ["doctor", *arguments, "--kubeconfig", str(kubeconfig), "-o", "json"]
    ran = CliRunner().invoke(commands, words, catch_exceptions=False)
    return {one["check"]: one for one in json.loads(ran.stdout)["results"]}


def wait_for_status(cluster: RealApiServer, check: str, status: str) -> Object:
    """What a check finds, once it is of this status: rights and policies take a moment to be in force."""
    look = partial(doctor, cluster.admin)
    return eventually(f"{check}: {status}", look, lambda checks: checks[check]["status"] == status)[check]


@contextmanager
def without(cluster: RealApiServer, path: str) -> Iterator[None]:
    """The cluster without an object."""
    stored = cluster.api.get(path)
    cluster.api.delete(path)
    try:
        yield
    finally:
        for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
            stored["metadata"].pop(field, None)
        cluster.api.create(stored)


@pytest.fixture(scope="module", autouse=True)
def _installed(api_server: RealApiServer) -> Iterator[None]:
    """A node that publishes a GPU: without any, there would be nothing to check."""
    (published,) = api_server.api.apply(slice_of("published"))
    yield
    api_server.api.delete(paths.resource_slice(published["metadata"]["name"]))


def test_a_right_that_was_taken_away_is_found(api_server: RealApiServer) -> None:
    role = api_server.api.get(ROLE)
    kept = [rule for rule in role["rules"] if rule["resources"] != ["resourceclaims/driver"]]
    api_server.api.patch(ROLE, {"rules": kept})
    try:
        found = wait_for_status(api_server, "driver-rights", "fail")
    finally:
        api_server.api.patch(ROLE, {"rules": role["rules"]})

    assert found["details"] == [
        (
            "gpu-dra/gpu-dra-kubeletplugin may not associated-node:patch "
            "resourceclaims/driver.resource.k8s.io gpu.nvidia.com"
        )
    ]
    wait_for_status(api_server, "driver-rights", "ok")


def test_a_policy_that_nobody_binds_is_found(api_server: RealApiServer) -> None:
    with without(api_server, BINDING):
        found = wait_for_status(api_server, "policies", "fail")

    assert found["details"] == ["gpu-dra-own-events: no binding of it has the action Deny"]


def test_a_webhook_is_tried_out(api_server: RealApiServer, tmp_path: Path) -> None:
    webhook = Webhook(api_server, tmp_path / "tls")
    api_server.api.create(webhook.registered())
    try:
        # Its certificate is for the test alone. That soon expires is said of a webhook that answers.
        wait_for_status(api_server, "webhook", "warn")
        webhook.process.stop()
        assert "does not deny" in wait_for_status(api_server, "webhook", "fail")["message"]
    finally:
        api_server.api.delete(f"{CONFIGURATIONS}/{NAME}")
    wait_for_status(api_server, "webhook", "skipped")
