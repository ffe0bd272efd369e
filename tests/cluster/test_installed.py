"""The driver as users have it on two nodes: installed by helm, upgraded, rolled back, uninstalled."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuctl.doctor.inside.checks import FABRIC_CHECKS, INSIDE
from gpuctl.doctor.inside.machine_checks import EDITION_CHECKS, MACHINE_CHECKS
from tests.cluster.install_scene import Installation, wait_job_said
from tests.cluster.left_behind import left_in_cluster, mps_processes
from tests.clusters import Object, RealCluster, fresh_namespace, paths, wait_gone
from tests.eventually import eventually
from tests.gpus import TAINT_RESET, gpu_device_name
from tools.testbed.chart import HelmRefused

POOL = {
    "name": "sharing",
    "nodeSelector": {"matchLabels": {"pool": "sharing"}},
    "rules": [{"shared": {"strategy": "TimeSlicing", "shares": 2}}],
}

NOT_SEEN_INSIDE = {"same-driver", "runtime-cdi", "memory-held"}
"""Checks that need a loaded kernel module, the root of the host, which these pods do not mount, or containers
that are held to their memory, which the driver of these machines does not do."""

WARNED_OF = {"cgroups", "memory-limits"}
"""What these nodes may be warned of: this machine may have control groups of version 1, and their driver
is too old to hold containers to their memory."""

OF_MACHINES = {check.name for check in (*FABRIC_CHECKS, *EDITION_CHECKS, *MACHINE_CHECKS)}
"""Checks about virtual machines and fabrics, of which these nodes have none."""


@pytest.fixture
def installation(start_cluster: Callable[[int], RealCluster], driver_image: Path) -> Iterator[Installation]:
    cluster = start_cluster(2)
    with fresh_namespace(cluster.api) as namespace:
        yield Installation(cluster, namespace, driver_image)


def test_from_installing_to_uninstalling_no_pod_is_disturbed_and_nothing_is_left(
    installation: Installation,
) -> None:
    before = [node.hardware() for node in installation.nodes]
    nothing = left_in_cluster(installation.cluster)
    files = [node.left() for node in installation.nodes]

    installation.install()
    first = installation.start("first")
    assert all(installation.daemons())
    the_doctor_is_content(installation)
    slow_connections_make_no_probe_fail(installation)
    who_uses_what_is_told(installation)
    changes_nothing(installation, first, installation.upgrade)
    second = installation.start("second", ("whole", "mps"))
    changes_nothing(installation, [*first, *second], installation.roll_back)

    refuses_to_uninstall(installation, [*first, *second])
    third = installation.start("third", ("dynamic", "extended"))
    installation.end([*first, *second, *third])
    installation.uninstall()

    assert left_in_cluster(installation.cluster) == nothing
    assert [node.left() for node in installation.nodes] == files
    assert [node.hardware() for node in installation.nodes] == before
    assert mps_processes(installation.cluster) == []


def the_doctor_is_content(installation: Installation) -> None:
    """Every check is made, of each node from inside its plugin's pod as well, and none fails."""
    for node in installation.nodes:
        results = installation.doctor(node.node.name)
        assert [one for one in results if one["status"] == "fail"] == []
        inside = {one["check"]: one["status"] for one in results if one["place"] != "cluster"}
        assert inside.keys() == {check.name for check in INSIDE}
        assert {name for name, status in inside.items() if status == "warn"} <= WARNED_OF
        left_out = {name for name, status in inside.items() if status == "skipped"}
        assert left_out - OF_MACHINES == NOT_SEEN_INSIDE


def slow_connections_make_no_probe_fail(installation: Installation) -> None:
    """A pod that holds many connections open gets no container killed, while the kubelets probe 100 times."""
    before, failed = installation.driver_containers(), installation.probes("failed")
    installation.open_slow_connections()
    enough = installation.probes("successful") + 100
    eventually("100 probes", lambda: installation.probes("successful"), lambda number: number >= enough)

    assert installation.probes("failed") == failed
    assert installation.driver_containers() == before
    installation.end(["attacker"])


def who_uses_what_is_told(installation: Installation) -> None:
    """Every plugin's metrics are read through the API server, and tell what whole GPUs use.

    A plugin that could not read the use in time leaves it out, so the question is asked until all is told.
    """

    def told(found: Object) -> bool:
        whole = [one for one in found["devices"] if one["tier"] == "whole"]
        return bool(whole) and found["lacking"] == [] and all("usedBytes" in one for one in whole)

    found = eventually("what every whole GPU uses", installation.top, told)

    assert {one["node"] for one in found["devices"]} == {node.node.name for node in installation.nodes}


def changes_nothing(installation: Installation, pods: list[str], change: Callable[[], None]) -> None:
    """Replace the driver while pods come and go: slices, daemons and pods that run stay as they are."""
    before = installation.containers(pods), installation.daemons()
    slices = installation.slices()
    writes, former = installation.slice_writes(), installation.driver_pods()
    with installation.churn() as ran:
        change()
        ran_meanwhile = ran()

    assert ran_meanwhile > 0
    assert installation.failed_prepares() == []
    assert (installation.containers(pods), installation.daemons()) == before
    assert installation.changes_since(writes, slices) == []
    assert installation.slices() == slices
    assert {(phase, restarts) for phase, _, restarts in before[0].values()} == {("Running", 0)}
    now = installation.driver_pods()
    for name in ("gpu-dra-controller", "gpu-dra-kubeletplugin"):
        assert len(now[name]) == 2
        assert now[name].isdisjoint(former[name])
    assert now["gpu-dra-mps"] == former["gpu-dra-mps"]


def refuses_to_uninstall(installation: Installation, pods: list[str]) -> None:
    """While pods have devices helm fails, they are named, and all stays as it is."""
    before = installation.slices(), installation.driver_pods(), installation.containers(pods)

    with pytest.raises(HelmRefused) as refused:
        installation.uninstall()

    said = wait_job_said(installation.cluster)
    named = set(re.findall(rf"{installation.namespace}/([\w-]+)", said))
    assert named <= set(pods)
    assert len(named) == min(len(pods), 20)
    assert all(f"{installation.namespace}/{pod}" in str(refused.value) for pod in named)
    assert (installation.slices(), installation.driver_pods(), installation.containers(pods)) == before


def test_a_changed_config_map_and_label_are_seen_without_a_restart_and_helm_4_uninstalls(
    start_cluster: Callable[[int], RealCluster], driver_image: Path
) -> None:
    cluster = start_cluster(1)
    with fresh_namespace(cluster.api) as namespace:
        installation = Installation(cluster, namespace, driver_image, "helm4")
        nothing = left_in_cluster(cluster)
        installation.install()
        heals_a_gpu_that_a_pod_has(installation)
        former = installation.driver_pods()

        installation.configure({"version": "v1", "pools": [POOL], "rules": [{"offer": "whole"}]})
        installation.wait_kinds({"gpu"})
        (node,) = cluster.nodes
        label = {"metadata": {"labels": {"pool": "sharing"}}}
        cluster.api.patch(paths.node(node.name), label)
        installation.wait_kinds({"shared"})

        assert installation.driver_pods() == former
        installation.uninstall()
        assert left_in_cluster(cluster) == nothing


def heals_a_gpu_that_a_pod_has(installation: Installation) -> None:
    """Its pod is evicted, its MPS daemon ended, and it is reset, by the admin's rights and kubectl."""
    (node,) = installation.nodes
    (pod,) = installation.start("sick", ("mps",))
    gpu = node.machine.pci(3)
    device = gpu_device_name(gpu)
    node.machine.recovery_action(gpu, "reset")
    installation.wait_taints(device, {TAINT_RESET})
    told = installation.gpuctl("heal", node.node.name, str(gpu))
    assert (told.returncode, f"pod {installation.namespace}/{pod}" in told.stdout) == (3, True), told

    healed = installation.gpuctl("heal", node.node.name, str(gpu), "--yes", "--timeout", "120")

    assert healed.returncode == 0, healed
    wait_gone(installation.cluster.api, paths.pod(pod, installation.namespace))
    assert node.daemons() == {}
    installation.wait_taints(device, set())
    assert installation.gpuctl("heal", node.node.name, str(gpu)).returncode == 0
