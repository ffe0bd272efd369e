"""An inference pod comes to a full node: the preemptor evicts who is in its way, and the pod runs."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from envtest.client import paths
from envtest.client.waiting import fresh_namespace, wait_gone
from envtest.cluster import DRIVER_NAMESPACE, Cluster, Process
from tests.eventually import eventually
from tests.flow.claims import request, start, wait_running, wait_unschedulable
from tests.flow.mig_scene import pod_of, profile, template
from tests.flow.several_machines import installed_on

Object = dict[str, Any]

MANIFEST = Path(__file__).resolve().parents[2] / "deploy/kustomize/components/preemptor/preemptor.yaml"
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
RULES = """version: v1
rules:
  - {when: gpu.index == 0, offer: whole}
  - {when: gpu.index == 1, mig: {layout: all-3g.40gb}}
  - {when: gpu.index == 2, shared: {strategy: TimeSlicing, shares: 2}}
  - {offer: hidden}
"""
KINDS: dict[str, tuple[Object, int]] = {
    "whole": (request(), 1),
    "partition": (profile("3g.40gb"), 2),
    "share": (request(device_class="shared-timesliced"), 2),
}
"""What a pod asks for, and how many of them the node has."""


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A node with a whole GPU, partitions and shares, two priorities, and the rights of the preemptor."""
    with installed_on(request.config, ("hgx-h100",), ("tiers",), RULES) as (cluster, _):
        objects = [one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"] in RIGHTS]
        cluster.api.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DRIVER_NAMESPACE}}])
        cluster.api.apply(objects)
        for name, value in (("notebook", 10), ("inference", 1000)):
            about = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            cluster.api.create({**about, "value": value})
        yield cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    with fresh_namespace(cluster.api) as name:
        yield name


@contextmanager
def preemptor(cluster: Cluster, *flags: str) -> Iterator[Process]:
    """Run it with the token of its service account until the block ends."""
    kubeconfig = cluster.service_account_kubeconfig("gpu-dra-preemptor", cluster.nodes[0].name)
    command = (sys.executable, "-m", "controller.preemptor", "--kubeconfig", str(kubeconfig), *flags)
    process = cluster.processes.start("preemptor", command)
    try:
        yield process
    finally:
        process.send(signal.SIGTERM)
        assert process.wait() == 0, process.log


def pod(name: str, kind: str, priority_class: str) -> Object:
    made = pod_of(name, kind)
    made["spec"]["priorityClassName"] = priority_class
    return made


def fill(cluster: Cluster, namespace: str, kind: str) -> list[str]:
    """Give everything of a kind to notebooks, one after the other; their names."""
    asked, there = KINDS[kind]
    template(cluster, namespace, kind, asked)
    names = [f"notebook-{number}" for number in range(there)]
    for name in names:
        start(cluster, namespace, pod(name, kind, "notebook"))
    return names


def told(cluster: Cluster, namespace: str, reason: str) -> set[str]:
    """The pods with an event of this reason."""
    events = cluster.api.list_objects(paths.event(namespace=namespace))
    return {one["involvedObject"]["name"] for one in events if one["reason"] == reason}


@pytest.mark.parametrize("kind", KINDS)
def test_the_pod_gets_the_devices_of_one_that_the_dry_run_had_named(
    cluster: Cluster, namespace: str, kind: str
) -> None:
    names = fill(cluster, namespace, kind)
    with preemptor(cluster, "--dry-run"):
        cluster.api.create(pod("inference", kind, "inference"), namespace)
        eventually("the dry run tells", lambda: told(cluster, namespace, "RoomWouldBeMade"))
        [named] = eventually("and names a pod", lambda: told(cluster, namespace, "WouldBePreempted"))
    cluster.api.delete(paths.pod("inference", namespace))
    wait_gone(cluster.api, paths.pod("inference", namespace))

    with preemptor(cluster) as process:
        eventually("it has the lease", lambda: "has the lease" in process.log.rpartition("stopping")[2])
        cluster.api.create(pod("inference", kind, "inference"), namespace)
        wait_unschedulable(cluster, namespace, "inference")
        refused = time.monotonic()
        eventually("it is evicted", lambda: told(cluster, namespace, "PreemptedForDevices"))
        evicted = time.monotonic()
        wait_gone(cluster.api, paths.pod(named, namespace))
        ended = time.monotonic()
        wait_running(cluster, namespace, "inference")
        runs = time.monotonic()
        eventually("its room is used", lambda: "outcome" in process.log and '"used"' in process.log)

    assert told(cluster, namespace, "PreemptedForDevices") == {named}
    left = {one["metadata"]["name"] for one in cluster.api.list_objects(paths.pod(namespace=namespace))}
    assert left == {"inference", *names} - {named}
    sys.stdout.write(
        f"{kind}: evicted {evicted - refused:.2f} s after the refusal, "
        f"runs {runs - ended:.2f} s after the end of the evicted pod\n"
    )  # shown with pytest -rP
