"""Builds the place of a scenario: a cluster whose nodes have fake machines, with the driver on each."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from driver.devices.names import DRIVER_NAME
from envtest.client import paths
from envtest.client.api import Object
from envtest.client.shipped import PACKAGE_ROOT, python_command, python_environment
from envtest.client.waiting import wait_for_list
from envtest.cluster import Cluster
from envtest.embedded.cluster import FOLDER_PREFIX, EmbeddedCluster, KubeletTimes
from envtest.real.assets import find_assets
from envtest.real.startup import start_cluster
from fakegpu.machine.spec import load_machine
from fakegpu.memory.calls import knows_limits
from gpuctl.demo.brisk import BRISK, BRISK_ON_REAL
from gpuctl.demo.driver_node import DRIVER_NAMESPACE, DriverNode
from gpuctl.demo.watchdog import watched_folder
from kubernetes_rules.pool_generations import is_complete, newest_slices
from tools.scenarios.description import ClusterKind, Node, Wanted
from tools.scenarios.places.needs import NEEDS
from tools.scenarios.places.projection import Projection, config_file, set_config
from tools.scenarios.programs import MACHINES_VARIABLE, NodeOfFakes
from tools.scenarios.programs import PROGRAMS as SCENARIO_PROGRAMS
from tools.testbed.memory_hook import memory_hook

CLASSES = "deviceclasses"
PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "gpuctl": ("gpuctl",),
    "kubectl-gpu": ("gpuctl",),
    "gpu-dra-preemptor": ("controller.preemptor",),
    "gpu-dra-cliques": ("controller.cliques",),
    **{name: ("tools.scenarios.programs", name) for name in SCENARIO_PROGRAMS},
}
"""The programs on PATH in a scenario, besides kubectl: name -> Python module and its arguments."""
PUBLISHED_SECONDS = 60.0

# Shorter times than those of the real kubelet, which looks for sockets every second, and tries a failed
# unprepare again after ten seconds, a failed prepare after a minute.
_BRISK_KUBELET = KubeletTimes(scan=0.1, unprepare_retry=0.3, prepare_retry=(0.5, 1.0))


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster whose nodes have published their slices; None for a scenario without nodes.

    ``programs`` is a folder with kubectl and ``PROGRAMS``. ``environment`` are the variables that a session
    needs besides PATH, HOME and KUBECONFIG.
    """

    cluster: Cluster | None
    drivers: tuple[DriverNode, ...]
    programs: Path
    environment: Mapping[str, str]


@contextmanager
def built_place(wanted: Wanted, kind: ClusterKind, kubectl: Path | None = None) -> Iterator[Place]:
    """Build a place, and end it with the context; raises the errors of clusters and of the driver.

    ``kubectl`` is the program to use, None for the one that is built with Kubernetes.
    """
    with ExitStack() as cleanup:
        programs = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="scenarios-")))
        _write_programs(programs, kubectl)
        if not wanted.nodes:
            yield Place(None, (), programs, {})
            return
        cluster = _started(kind, len(wanted.nodes), cleanup)
        needs = [NEEDS[name] for name in sorted(wanted.needs)]
        for need in needs:
            need.load(cluster)
        _apply_classes(cluster)
        drivers = tuple(
            _installed(cluster, index, node, kind, cleanup) for index, node in enumerate(wanted.nodes)
        )
        set_config(cluster.api, wanted.config)
        files = [config_file(driver) for driver in drivers]
        cleanup.enter_context(Projection(cluster.admin, files))
        for driver, node in zip(drivers, wanted.nodes, strict=True):
            needed = [flag for need in needs for flag in need.plugin_flags(driver)]
            driver.start_plugin(*needed, *node.plugin_flags)
            driver.start_controller("--config", str(config_file(driver)), *node.controller_flags)
            driver.start_mps()
        for driver in drivers:
            driver.wait_serving()
        wait_published(cluster, {driver.node.name for driver in drivers})
        for need in needs:
            need.begin(cluster, drivers, cleanup)
        machines = programs / "machines.json"
        known = {one.node.name: asdict(_node_of_fakes(one)) for one in drivers}
        machines.write_text(json.dumps(known))
        yield Place(cluster, drivers, programs, {MACHINES_VARIABLE: str(machines)})


def wait_published(cluster: Cluster, nodes: set[str]) -> None:
    """Wait until each node has published all of its slices; raises WaitTimeout."""

    def complete(slices: list[Object]) -> bool:
        pools = newest_slices(slices).values()
        there = {str(one["spec"].get("nodeName", "")) for pool in pools for one in pool}
        return all(map(is_complete, pools)) and nodes <= there

    selector = f"spec.driver={DRIVER_NAME}"
    wait_for_list(cluster.api, paths.resource_slice(), complete, PUBLISHED_SECONDS, fieldSelector=selector)


def _started(kind: ClusterKind, node_count: int, cleanup: ExitStack) -> Cluster:
    """A cluster without the driver; nothing of it outlives this process, however that ends."""
    if kind == "embedded":
        folder = cleanup.enter_context(watched_folder(FOLDER_PREFIX))
        return cleanup.enter_context(EmbeddedCluster(node_count, _BRISK_KUBELET, folder, https=True))
    return cleanup.enter_context(start_cluster(node_count))


def _apply_classes(cluster: Cluster) -> None:
    """Make the namespace of the driver, and the DeviceClasses that are installed by default."""
    cluster.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DRIVER_NAMESPACE}})
    for file in sorted((PACKAGE_ROOT / CLASSES).glob("*.yaml")):
        cluster.api.apply(file)


def _installed(cluster: Cluster, index: int, node: Node, kind: ClusterKind, cleanup: ExitStack) -> DriverNode:
    """Install the driver and a fake machine on a node and label the node; nothing is started yet."""
    if node.labels:
        cluster.api.patch(paths.node(cluster.nodes[index].name), {"metadata": {"labels": dict(node.labels)}})
    launcher = BRISK if kind == "embedded" else BRISK_ON_REAL
    holds_to_limits = kind == "real" and knows_limits(load_machine(node.machine).driver_version)
    hook = memory_hook() if holds_to_limits else None
    driver = DriverNode.install(cluster, index, node.machine, launcher=launcher, memory_hook=hook)
    # Pretended control groups, so that it does not matter which version of cgroups this machine has.
    if holds_to_limits:
        driver.machine.pretend_cgroups(driver.node.cgroup_dir)
    cleanup.callback(driver.end_mps)
    config_file(driver).parent.mkdir()
    return driver


def _node_of_fakes(driver: DriverNode) -> NodeOfFakes:
    return NodeOfFakes(driver.nvml, str(driver.folder), str(driver.node.plugins_dir))


def _write_programs(folder: Path, kubectl: Path | None) -> None:
    """Write the programs of a scenario into a folder: a link to kubectl, and scripts for PROGRAMS."""
    (folder / "kubectl").symlink_to(kubectl or find_assets().binary("kubectl"))
    environment = [f"{name}={value}" for name, value in python_environment(PACKAGE_ROOT).items()]
    for name, module in PROGRAMS.items():
        command = shlex.join(["env", *environment, *python_command("-m", *module)])
        (folder / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (folder / name).chmod(0o755)


def session_environment(place: Place, home: Path) -> dict[str, str]:
    """The environment of a session; of this process's own environment it gets only PATH."""
    kubeconfig = home / "kubeconfig"
    if place.cluster is not None:
        # A copy, since a scenario may change it, for example by kubectl config.
        kubeconfig.write_bytes(place.cluster.admin.read_bytes())
        kubeconfig.chmod(0o600)
    system = os.environ.get("PATH", os.defpath)
    return {
        "PATH": f"{place.programs}:{system}",
        "HOME": str(home),
        "KUBECONFIG": str(kubeconfig),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        **place.environment,
    }
