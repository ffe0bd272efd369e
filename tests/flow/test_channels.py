"""Gangs on a rack: each has one claim for an IMEX channel, which keeps its pods in one NVLink clique."""

import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml

from fakegpu.driver_files.driver_root import IMEX_STATE
from tests.clusters import Cluster, DriverNode, Object, fresh_namespace, paths, wait_for, wait_for_list
from tests.eventually import eventually
from tests.flow.claims import (
    allocated,
    gpu_nodes,
    gpu_pod,
    make_claim,
    make_template,
    request,
    wait_running,
    wait_unschedulable,
)
from tests.flow.gangs import (
    CLIQUE,
    LABEL,
    OTHER,
    begin,
    channels,
    end,
    node_of,
    offer_channels,
    start_plugin,
    start_publisher,
)
from tests.flow.several_machines import installed_on
from tests.flow.test_explain import explained
from tests.gpus import MACHINES

Trays = tuple[Cluster, tuple[DriverNode, ...]]

CHANNELS = 2


@pytest.fixture(scope="module")
def trays(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trays]:
    """Two trays of one clique and two of another, with the driver, and two channels for each clique."""
    other: Path = tmp_path_factory.mktemp("machines") / "gb200-of-another-clique.yaml"
    machine = yaml.safe_load((MACHINES / "gb200-tray.yaml").read_text())
    machine["fabric"]["clique"] = 4027
    other.write_text(yaml.safe_dump(machine))
    machines = ("gb200-tray", "gb200-tray", str(other), str(other))
    with installed_on(request.config, machines) as (cluster, drivers):
        for driver in drivers:
            driver.process("kubeletplugin").stop()
            start_plugin(driver)
        process = offer_channels(cluster, CHANNELS)
        yield cluster, drivers
        process = cluster.processes.named(process.name)
        process.send(signal.SIGTERM)
        assert process.wait() == 0, process.log


@pytest.fixture
def cluster(trays: Trays) -> Cluster:
    return trays[0]


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    with fresh_namespace(cluster.api) as name:
        yield name


def specs(drivers: Iterable[DriverNode]) -> list[Path]:
    """The CDI specs of claims for channels on these nodes."""
    return [file for driver in drivers for file in driver.node.cdi_dir.glob("*channels*")]


def test_gangs_on_the_same_nodes_have_different_channels_and_each_stays_in_its_clique(
    trays: Trays, namespace: str
) -> None:
    cluster, drivers = trays
    make_template(cluster, namespace, request(count=2))
    first, second = [f"first-{number}" for number in range(2)], [f"second-{number}" for number in range(2)]
    begin(cluster, namespace, "first", *first, clique=OTHER)
    for name in first:
        wait_running(cluster, namespace, name)
    begin(cluster, namespace, "second", *second, clique=OTHER)
    for name in second:
        wait_running(cluster, namespace, name)

    others = {driver.node.name for driver in drivers[2:]}
    assert {node_of(cluster, namespace, name) for name in first + second} <= others
    given = [
        allocated(cluster.api.get(paths.resource_claim(gang, namespace))) for gang in ("first", "second")
    ]
    assert sorted(given) == [["channel-1"], ["channel-2"]]
    for gang, pods in zip(given, (first, second), strict=True):
        for name in pods:
            assert channels(cluster, namespace, name) == [gang[0].replace("-", "")]
    end(cluster, namespace, "first", *first)
    end(cluster, namespace, "second", *second)
    eventually("no CDI spec of a channel is left", lambda: not specs(drivers))


def test_a_gang_waits_while_all_channels_of_the_cliques_are_taken(cluster: Cluster, namespace: str) -> None:
    make_template(cluster, namespace)
    for number in range(2 * CHANNELS):
        begin(cluster, namespace, f"gang-{number}", f"pod-{number}")
        wait_running(cluster, namespace, f"pod-{number}")

    begin(cluster, namespace, "late", "late")
    wait_unschedulable(cluster, namespace, "late")
    code, told = explained(cluster, namespace, "pod", "late")
    assert (code, "nvlink-channel" in told) == (3, True), told

    end(cluster, namespace, "gang-0", "pod-0")
    wait_running(cluster, namespace, "late")


def test_a_pod_waits_for_nvidia_imex_and_is_told_of_it(trays: Trays, namespace: str) -> None:
    cluster, drivers = trays
    make_template(cluster, namespace)
    states = [Path(driver.driver_root) / IMEX_STATE for driver in drivers]
    for state in states:
        state.write_text("INITIALIZING")
    try:
        begin(cluster, namespace, "gang", "gang-0")

        def told(events: list[Object]) -> bool:
            return any(
                "nvidia-imex of this node is not ready: INITIALIZING" in one["message"] for one in events
            )

        wait_for_list(cluster.api, paths.event(namespace=namespace), told, 60)
    finally:
        for state in states:
            state.unlink()
    wait_running(cluster, namespace, "gang-0")
    claim = wait_for(cluster.api, paths.resource_claim("gang", namespace), lambda _claim: True, 10)
    assert "devices" not in claim["status"], "no node writes into a gang's claim"


def test_a_gang_that_does_not_fit_into_its_clique_waits_and_is_told_which_one_it_chose(
    cluster: Cluster, namespace: str
) -> None:
    make_template(cluster, namespace, request(count=4))
    begin(cluster, namespace, "gang", "gang-0", "gang-1", "gang-2", clique=CLIQUE)
    wait_unschedulable(cluster, namespace, "gang-2")

    _, told = explained(cluster, namespace, "pod", "gang-2")
    assert f"of the NVLink clique {CLIQUE}" in " ".join(told.split())
    assert "delete the gang's pods, then claim gang" in " ".join(told.split())


def test_processes_that_are_killed_leave_no_channel_held(trays: Trays, namespace: str) -> None:
    cluster, drivers = trays
    make_template(cluster, namespace)
    begin(cluster, namespace, "gang", "gang-0", clique=CLIQUE)
    wait_running(cluster, namespace, "gang-0")
    for driver in drivers:
        driver.process("kubeletplugin").kill()
    cluster.processes.named("cliques").kill()
    cluster.api.delete(paths.pod("gang-0", namespace))
    for driver in drivers:
        start_plugin(driver)
    publisher = start_publisher(cluster, CHANNELS)
    eventually("the publisher has the lease", lambda: publisher.log.count("has the lease") == 2)
    end(cluster, namespace, "gang")

    eventually("no CDI spec of a channel is left", lambda: not specs(drivers))
    for number in range(CHANNELS):
        begin(cluster, namespace, f"next-{number}", f"next-{number}", clique=CLIQUE)
        wait_running(cluster, namespace, f"next-{number}")


def test_a_claim_with_gpus_and_all_channels_of_a_clique_is_what_it_asks_for(
    trays: Trays, namespace: str
) -> None:
    cluster, drivers = trays
    channel = request("channel", "nvlink-channel", allocationMode="All")
    make_claim(cluster, namespace, "both", request("gpu"), channel)
    pod = gpu_pod("both", "both")
    pod["spec"]["nodeSelector"] = {LABEL: OTHER}
    cluster.api.create(pod, namespace)
    wait_running(cluster, namespace, "both")

    assert channels(cluster, namespace, "both") == ["channel1", "channel2"]
    assert len(gpu_nodes(cluster, namespace, "both")) == 1
    make_template(cluster, namespace)
    begin(cluster, namespace, "gang", "gang-0")
    wait_running(cluster, namespace, "gang-0")
    assert node_of(cluster, namespace, "gang-0") in {driver.node.name for driver in drivers[:2]}
