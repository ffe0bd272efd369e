"""What a tenant writes into a claim reaches no other claim, and ends no process of the driver."""

import json

import pytest

from driver.claims.opaque import API_VERSION
from tests.clusters import DriverNode, Object, paths, wait_for_list
from tests.flow.claims import gpu_pod, make_template, request, start, wait_published, wait_running
from tests.gpus import DRIVER_NAME

PLACE = "@"
NESTED = b"[" * 2500 + b"]" * 2500


def hostile_claim(name: str, text: bytes) -> bytes:
    """A claim whose opaque configuration has a field with this JSON."""
    parameters = {"apiVersion": API_VERSION, "kind": "GpuConfig", "sharing": {"strategy": PLACE}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {
            "devices": {
                "requests": [request()],
                "config": [{"opaque": {"driver": DRIVER_NAME, "parameters": parameters}}],
            }
        },
    }
    return json.dumps(claim).encode().replace(json.dumps(PLACE).encode(), text)


def refusals(event: Object, claim: str) -> bool:
    return bool(event["reason"] == "PrepareFailed" and event["involvedObject"]["name"] == claim)


@pytest.mark.parametrize(
    "text", [NESTED, b'"\\ud800"', b"1e300", b'"\\u001b[31m"'], ids=["nested", "surrogate", "huge", "escape"]
)
def test_a_hostile_configuration_is_refused_and_hurts_nobody_else(
    driver: DriverNode, namespace: str, text: bytes
) -> None:
    cluster = driver.cluster
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    with cluster.api.stream("POST", path, hostile_claim("hostile", text)):
        pass  # it was accepted: the API server reads no more of it than that it is an object
    cluster.api.create(gpu_pod("attacker", "hostile"), namespace)

    events = wait_for_list(
        cluster.api,
        f"/api/v1/namespaces/{namespace}/events",
        lambda found: any(refusals(event, "hostile") for event in found),
        timeout_seconds=60,
    )
    (message,) = {event["message"] for event in events if refusals(event, "hostile")}
    assert (
        "the opaque configuration is malformed: sharing.strategy: must be one of TimeSlicing, MPS" in message
    )
    driver.process("controller").stop()
    driver.start_controller()
    wait_published(driver)
    make_template(cluster, namespace)
    start(cluster, namespace, gpu_pod("neighbour"))
    wait_running(cluster, namespace, "neighbour")
    for package in ("kubeletplugin", "controller"):
        assert driver.process(package).returncode is None
    cluster.api.delete(paths.pod("attacker", namespace))
    with cluster.api.stream("DELETE", f"{path}/hostile"):  # what tidies up after tests cannot read it
        pass
