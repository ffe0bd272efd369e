"""Clusters of a test's own whose nodes are different machines, embedded or real as was asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fakegpu.memory.calls import knows_limits
from tests import fork_server
from tests.clusters import (
    BRISK,
    BRISK_ON_REAL,
    PACKAGE_ROOT,
    Cluster,
    DriverNode,
    EmbeddedCluster,
    KubeletTimes,
)
from tests.flow.claims import wait_published

Installed = tuple[Cluster, tuple[DriverNode, ...]]


@contextmanager
def installed_on(
    config: pytest.Config,
    machines: tuple[str, ...],
    classes: tuple[str, ...] = (),
    rules: str = "",
    *,
    pretend_cgroups: bool = False,
    times: KubeletTimes | None = None,
) -> Iterator[Installed]:
    """A cluster with one node for each machine, and the driver on each, which has published.

    ``classes`` are files of ``deviceclasses/``, ``rules`` the node configuration, empty for none. With
    ``pretend_cgroups`` NVIDIA drivers hold containers to memory limits on a machine with cgroup v1, too.
    ``times`` are the intervals of an embedded kubelet.
    """
    if config.getoption("--cluster", default="embedded") == "real":
        from envtest.real.startup import start_cluster
        from tools.testbed.memory_hook import memory_hook

        with start_cluster(len(machines), str(config.getoption("--kubernetes")), audit=True) as real:
            hook = memory_hook() if pretend_cgroups else None
            yield installed_in(real, BRISK_ON_REAL, machines, classes, rules, hook)
        return
    with EmbeddedCluster(len(machines), times, start=fork_server.start) as embedded:
        yield installed_in(embedded, BRISK, machines, classes, rules)


def installed_in(
    cluster: Cluster,
    launcher: tuple[str, ...],
    machines: tuple[str, ...],
    classes: tuple[str, ...],
    rules: str,
    hook: Path | None = None,
) -> Installed:
    """The driver on each node of a cluster, on these machines, as ``installed_on`` says."""
    drivers = tuple(
        DriverNode.install(cluster, index, machine, launcher=launcher, memory_hook=hook)
        for index, machine in enumerate(machines)
    )
    for name in classes:
        cluster.api.apply(PACKAGE_ROOT / f"deviceclasses/{name}.yaml")
    for driver in drivers:
        if hook is not None and knows_limits(driver.machine.state.driver_version):
            driver.machine.pretend_cgroups(driver.node.cgroup_dir)
        driver.start_plugin()
        flags: tuple[str, ...] = ()
        if rules:
            file = driver.folder / "node-config.yaml"
            file.write_text(rules)
            flags = ("--config", str(file))
        driver.start_controller(*flags)
    for driver in drivers:
        driver.wait_serving()
        wait_published(driver)
    return cluster, drivers
