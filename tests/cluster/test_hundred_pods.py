"""A hundred pods of all kinds are created at once beside two busy loops: the first attempt prepares each.

The kubelet repeats a prepare that failed only after a minute or more, so on a busy node the driver waits.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.cluster.objects import sleeper
from tests.clusters import (
    BRISK_ON_REAL,
    Cluster,
    DriverNode,
    Object,
    RealCluster,
    fresh_namespace,
    paths,
    wait_for_list,
)
from tests.flow.claims import request
from tests.flow.mig_scene import pod_of, profile, template
from tests.flow.several_machines import installed_in

CUT, SHARED, HOST = range(3)
MACHINES = ("hgx-h100", "hgx-h100", "vgpu-host-l40s")
CLASSES = ("tiers", "vfio", "vgpu", "opt-in/gpu")
RULES = """version: v1
pools:
  - name: cut
    nodeSelector: {matchLabels: {tier: cut}}
    rules:
      - {when: "gpu.index in [0, 1, 2]", offer: whole}
      - {when: "gpu.index in [3, 4, 5]", mig: {dynamic: {profiles: [1g]}}, offer: partitions}
      - {when: gpu.index == 6, mig: {layout: all-1g.10gb}}
      - {when: gpu.index == 7, offer: passthrough}
  - name: shared
    nodeSelector: {matchLabels: {tier: shared}}
    rules:
      - {when: gpu.index == 0, shared: {strategy: TimeSlicing, shares: 20}}
      - {when: "gpu.index in [1, 2, 3, 4]", shared: {strategy: MPS, shares: 8}}
      - {when: gpu.index == 5, shared: {strategy: MPS, memory: {step: 4Gi}}}
      - {offer: hidden}
rules:
  - vgpu: {profiles: [L40S-8Q]}
"""
LABELS = ("cut", "shared", "host")


WANTED: dict[str, tuple[int, Object | None]] = {
    "whole": (2, request()),
    "extended": (1, None),
    "partition": (28, profile("1g.10gb")),
    "machine": (1, request(device_class="vfio.gpu.nvidia.com")),
    "time-sliced": (20, request(device_class="shared-timesliced")),
    "mps": (32, request(device_class="shared-mps", capacity={"requests": {"shares": "1"}})),
    "mps-memory": (4, request(device_class="shared-mps", capacity={"requests": {"memory": "16Gi"}})),
    "vgpu": (12, request(device_class="vgpu.gpu.nvidia.com")),
}
"""How many pods ask for what; one asks by ``nvidia.com/gpu`` in its limits."""

AUTHORIZER_LAGS = "no relationship found between node"
"""The kubelet is refused the claim, and calls no driver, until the API server's node authorizer has seen that
the claim's pod was scheduled to the node."""


@pytest.fixture
def busy() -> Iterator[None]:
    """Two processes that never rest."""
    with ExitStack() as stack:
        for _ in range(2):
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(loop.kill)
        yield


def pods() -> list[Object]:
    """All pods, of all kinds in turn."""
    kinds = [(number, name) for name, (count, _) in WANTED.items() for number in range(count)]
    return [_pod(name, f"{name}-{number}") for number, name in sorted(kinds)]


def _pod(kind: str, name: str) -> Object:
    if WANTED[kind][1] is not None:
        return pod_of(name, kind)
    pod = sleeper(name)
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    return pod


def installed(cluster: RealCluster) -> tuple[Cluster, tuple[DriverNode, ...]]:
    """The driver on all nodes, each with its tier, and the templates' classes."""
    for node, tier in zip(cluster.nodes, LABELS, strict=True):
        cluster.api.patch(paths.node(node.name), {"metadata": {"labels": {"tier": tier}}})
    found, drivers = installed_in(cluster, BRISK_ON_REAL, MACHINES, CLASSES, RULES)
    drivers[SHARED].start_mps()
    return found, drivers


def failed_attempts(cluster: Cluster, namespace: str) -> list[str]:
    """Each prepare that failed, as the kubelets and the plugins told it."""
    events = cluster.api.list_objects(paths.event(namespace=namespace))
    reasons = {"FailedPrepareDynamicResources", "PrepareFailed"}
    return [
        f"{one['involvedObject']['name']}: {one['message']}" for one in events if one["reason"] in reasons
    ]


def all_run(stored: list[Object]) -> bool:
    """Whether all pods are there and run."""
    phases = [pod["status"].get("phase") for pod in stored]
    return len(phases) == sum(count for count, _ in WANTED.values()) and set(phases) == {"Running"}


def test_the_first_attempt_prepares_each_of_a_hundred_pods_on_a_busy_node(
    start_cluster: Callable[[int], RealCluster], busy: None
) -> None:
    del busy
    cluster, _ = installed(start_cluster(len(MACHINES)))
    with fresh_namespace(cluster.api) as namespace:
        for name, (_, asked) in WANTED.items():
            if asked is not None:
                template(cluster, namespace, name, asked)
        with ThreadPoolExecutor(8) as at_once:
            list(at_once.map(lambda pod: cluster.api.create(pod, namespace), pods()))

        wait_for_list(cluster.api, paths.pod(namespace=namespace), all_run, 600)

        failed = failed_attempts(cluster, namespace)
        sys.stdout.writelines(f"second attempt: {one}\n" for one in failed)  # shown with pytest -rP
        assert [one for one in failed if AUTHORIZER_LAGS not in one] == []
