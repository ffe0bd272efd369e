"""An inference pod comes to a full node: the preemptor evicts who is in its way, and the pod runs."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.clusters import (
    DRIVER_NAMESPACE,
    PACKAGE_ROOT,
    Cluster,
    Object,
    Process,
    fresh_namespace,
    paths,
    wait_gone,
)
from tests.eventually import eventually
from tests.flow.claims import request, wait_running, wait_unschedulable
from tests.flow.mig_scene import pod_of, profile, template
from tests.flow.several_machines import installed_on

RULES = """version: v1
rules:
  - {when: gpu.index == 0, offer: whole}
  - {when: gpu.index == 1, mig: {layout: all-3g.40gb}}
  - {when: gpu.index == 2, shared: {strategy: TimeSlicing, shares: 2}}
  - {when: gpu.index > 2, offer: partitions, mig: {dynamic: {profiles: [1g, 2g]}}}
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
        cluster.api.apply(PACKAGE_ROOT / "deploy/rbac.yaml")
        for name, value in (("notebook", 10), ("inference", 1000)):
            about = {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
            }
            cluster.api.create({**about, "value": value})
        yield cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    with fresh_namespace(cluster.api) as name:
        yield name


@contextmanager
def preemptor(cluster: Cluster, *flags: str) -> Iterator[Process]:
    """Run it with the token of its service account until the block ends."""
    kubeconfig = cluster.service_account_kubeconfig(
        DRIVER_NAMESPACE, "gpu-dra-preemptor", cluster.nodes[0].name
    )
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


def fill(cluster: Cluster, namespace: str) -> dict[str, set[str]]:
    """Give everything on the node to notebooks; their names by kind."""
    names: dict[str, set[str]] = {}
    for kind, (asked, there) in KINDS.items():
        template(cluster, namespace, kind, asked)
        names[kind] = {f"notebook-{kind}-{number}" for number in range(there)}
        for name in names[kind]:
            cluster.api.create(pod(name, kind, "notebook"), namespace)
    for name in (one for some in names.values() for one in some):
        wait_running(cluster, namespace, name)
    return names


def told(cluster: Cluster, namespace: str, reason: str) -> set[str]:
    """The pods with an event of this reason."""
    events = cluster.api.list_objects(paths.event(namespace=namespace))
    return {one["involvedObject"]["name"] for one in events if one["reason"] == reason}


def rehearse(cluster: Cluster, namespace: str) -> set[str]:
    """Let an inference pod of each kind come while a dry run looks, and go again; whom it named."""
    inference = {f"inference-{kind}" for kind in KINDS}
    with preemptor(cluster, "--dry-run"):
        for kind in KINDS:
            cluster.api.create(pod(f"inference-{kind}", kind, "inference"), namespace)
        look = partial(told, cluster, namespace, "RoomWouldBeMade")
        eventually("the dry run tells", look, lambda names: names == inference)
        look = partial(told, cluster, namespace, "WouldBePreempted")
        named = eventually("and names a pod for each", look, lambda names: len(names) == len(KINDS))
    for name in inference:
        cluster.api.delete(paths.pod(name, namespace))
        wait_gone(cluster.api, paths.pod(name, namespace))
    return named


def test_each_pod_gets_the_devices_of_one_that_the_dry_run_had_named(
    cluster: Cluster, namespace: str
) -> None:
    notebooks = fill(cluster, namespace)
    named = rehearse(cluster, namespace)
    assert all(len(named & names) == 1 for names in notebooks.values())

    with preemptor(cluster) as process:
        eventually("it acts", lambda: "makes room from now on" in process.log.rpartition("stopping")[2])
        for kind, names in notebooks.items():
            [victim] = named & names
            name = f"inference-{kind}"
            cluster.api.create(pod(name, kind, "inference"), namespace)
            wait_unschedulable(cluster, namespace, name)
            refused = time.monotonic()
            look = partial(told, cluster, namespace, "PreemptedForDevices")
            eventually(f"{victim} is evicted", look, {victim}.issubset)
            evicted = time.monotonic()
            wait_gone(cluster.api, paths.pod(victim, namespace))
            ended = time.monotonic()
            wait_running(cluster, namespace, name)
            # Shown with pytest -rP.
            sys.stdout.write(
                f"{kind}: evicted {evicted - refused:.2f} s after the refusal, "
                f"runs {time.monotonic() - ended:.2f} s after the end of the evicted pod\n"
            )
        log = partial(getattr, process, "log")
        eventually("all rooms are used", log, lambda text: text.count('"used"') == len(KINDS), seconds=20)

    assert "was answered 403" not in process.log
    assert told(cluster, namespace, "PreemptedForDevices") == named
    everybody = {name for names in notebooks.values() for name in names}
    left = {one["metadata"]["name"] for one in cluster.api.list_objects(paths.pod(namespace=namespace))}
    assert left == {f"inference-{kind}" for kind in KINDS} | everybody - named
