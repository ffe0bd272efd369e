"""Kubernetes takes the slices of every machine and instance type as `gpuctl plan` prints them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import Object, RealApiServer, paths, plan_inventory, plan_node
from tests.gpus import instance_types, known_machines, load_config
from tools.conformance.oracle import Oracle

NODE_CONFIGS = Path(__file__).resolve().parents[2] / "deploy/examples/node-config"
OFFERING_MOST = ("all-kinds", "all-tiers")


@pytest.fixture(scope="module")
def oracle(real_api_server: RealApiServer) -> Iterator[Oracle]:
    """The rules of the version, where the API server may be an older one."""
    with Oracle(real_api_server.described.assets.binary("oracle")) as running:
        yield running


@pytest.mark.parametrize("machine", [*known_machines(), *instance_types()])
def test_planned_slices_are_taken_as_they_are(
    real_api_server: RealApiServer, oracle: Oracle, machine: str
) -> None:
    inventory = plan_node(machine, "node-a", None).inventory
    slices: list[Object] = [
        one
        for name in OFFERING_MOST
        for one in plan_inventory(inventory, "node-a", load_config(NODE_CONFIGS / f"{name}.yaml")).slices
    ]

    for one in slices:
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        stored = real_api_server.api.request("POST", paths.resource_slice(), one, query=query)
        for device in stored["spec"].get("devices", ()):
            for taint in device.get("taints", ()):
                del taint["timeAdded"]  # the API server's own
        assert stored["spec"] == one["spec"]
    answers = oracle.ask({"op": "validate", "object": one} for one in slices)
    assert [answer["errors"] for _, answer in answers] == [[]] * len(slices)
