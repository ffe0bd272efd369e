"""Nodes with and without memory limits in one cluster: the scheduler picks by attribute."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from tests.clusters import Cluster, DriverNode, Object, commands, fresh_namespace, paths, wait_for
from tests.flow.claims import request, wait_running, wait_unschedulable
from tests.flow.mig_scene import pod_of, template
from tests.flow.several_machines import installed_on

HOLDS, COUNTS = range(2)
MACHINES = ("l4-quad", "a30-quad")
"""A machine whose NVIDIA driver holds limits, and one whose driver is older."""

RULES = "version: v1\nrules: [{shared: {strategy: TimeSlicing, memory: {step: 1Gi}}}]\n"
TWENTY = {"requests": {"memory": "20Gi"}}


@dataclass(frozen=True, slots=True)
class Nodes:
    """The cluster, and the driver on each of its nodes.

    ``starts``: containers with limits start there, for which a real runtime would need the built hook.
    """

    cluster: Cluster
    drivers: tuple[DriverNode, ...]
    starts: bool

    def node_of(self, namespace: str, pod: str) -> int:
        """The machine that the scheduler picked for a pod."""
        stored = wait_for(
            self.cluster.api, paths.pod(pod, namespace), lambda one: bool(one["spec"].get("nodeName"))
        )
        if self.starts:
            wait_running(self.cluster, namespace, pod)
        return [node.name for node in self.cluster.nodes].index(stored["spec"]["nodeName"])

    def told(self, namespace: str, pod: str) -> list[str]:
        """What ``gpuctl explain`` finds of a pod."""
        where = ("-n", namespace, "--kubeconfig", str(self.cluster.admin), "-o", "json")
        result = CliRunner().invoke(commands, ["explain", "pod", pod, *where], catch_exceptions=False)
        return [str(one["message"]) for one in json.loads(result.output)["findings"]]


@pytest.fixture(scope="module")
def nodes(request: pytest.FixtureRequest) -> Iterator[Nodes]:
    """Two nodes that share their GPUs by memory."""
    with installed_on(request.config, MACHINES, ("tiers",), RULES, pretend_cgroups=True) as (
        cluster,
        drivers,
    ):
        yield Nodes(cluster, drivers, request.config.getoption("--cluster", default="embedded") != "real")


@pytest.fixture
def namespace(nodes: Nodes) -> Iterator[str]:
    """A namespace with a template for each class of shares."""
    with fresh_namespace(nodes.cluster.api) as name:
        for class_name in ("shared-memory", "shared-timesliced"):
            asked = request(device_class=class_name, capacity=TWENTY)
            template(nodes.cluster, name, class_name, asked)
        yield name


def isolation(devices: list[Object]) -> set[tuple[str | None, str | None]]:
    """What the devices say of limits and of isolation."""
    return {
        (
            device["attributes"].get("memoryLimits", {}).get("string"),
            device["attributes"].get("memoryIsolation", {}).get("string"),
        )
        for device in devices
    }


def test_who_insists_on_memory_that_holds_gets_it_and_waits_where_it_is_only_counted(
    nodes: Nodes, namespace: str
) -> None:
    api = nodes.cluster.api
    for number in range(4):
        api.create(pod_of(f"held-{number}", "shared-memory"), namespace)
        assert nodes.node_of(namespace, f"held-{number}") == HOLDS
    api.create(pod_of("fifth", "shared-memory"), namespace)
    wait_unschedulable(nodes.cluster, namespace, "fifth")
    told = " ".join(nodes.told(namespace, "fifth"))
    old = nodes.cluster.nodes[COUNTS].name
    assert f"{old}: memory limits of shares are not enforced there: its NVIDIA driver" in told
    assert "is older than R615" in told
    api.create(pod_of("any", "shared-timesliced"), namespace)
    assert nodes.node_of(namespace, "any") == COUNTS
