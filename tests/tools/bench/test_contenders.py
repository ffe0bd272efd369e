"""The floor, today's driver and a former version prepare the claims of the bench, each on its own node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from envtest.embedded.cluster import EmbeddedCluster
from gpuctl.demo.brisk import BRISK
from gpuctl.demo.driver_node import DriverNode
from proto import dra_v1_pb2 as pb
from tests import fork_server
from tools.bench.__main__ import (
    CALLS,
    MACHINE,
    beside_floor,
    beside_former,
    claims_of,
    floor_beside,
    plugin_of,
    start,
)
from tools.bench.kubelet_calls import make_namespace
from tools.bench.latency import Rounds

ONE_ROUND = Rounds(singles=1, bursts=1, crowds=1, pause_seconds=0)
ENOUGH = 8


@dataclass(frozen=True)
class Nodes:
    """A cluster with the driver on one node and another version of it on the other, with their claims."""

    cluster: EmbeddedCluster
    driver: DriverNode
    former: DriverNode
    claims: list[pb.Claim]
    former_claims: list[pb.Claim]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with EmbeddedCluster(2, start=fork_server.start) as cluster:
        former = DriverNode.install(cluster, 1, MACHINE)
        driver = DriverNode.install(cluster, 0, MACHINE, BRISK)
        for one in (driver, former):
            start(one)
        make_namespace(cluster)
        yield Nodes(cluster, driver, former, claims_of(driver)[:ENOUGH], claims_of(former)[:ENOUGH])


def specs(driver: DriverNode) -> dict[str, int]:
    """The sizes of the files in a node's CDI folder, by name; unfinished ones included."""
    return {path.name: path.stat().st_size for path in driver.node.cdi_dir.iterdir()}


def journal(driver: DriverNode, uid: str) -> list[Path]:
    """The files that the floor has about a claim."""
    return list(driver.folder.glob(f"floor-*/*{uid}*"))


def gets(nodes: Nodes) -> int:
    return nodes.cluster.api_server.count("get", "resourceclaims")


def test_the_floor_gets_the_claim_and_leaves_a_spec_like_the_drivers_and_one_journal_file(
    nodes: Nodes,
) -> None:
    claim = nodes.claims[0]
    uid = claim.uid
    with plugin_of(nodes.driver) as plugin:
        plugin.prepare(claim)
        (size,) = specs(nodes.driver).values()
        plugin.unprepare(claim)
    with floor_beside(nodes.driver, nodes.claims) as floor:
        before = gets(nodes)
        floor.prepare(claim)

        assert gets(nodes) == before + 1
        assert specs(nodes.driver) == {f"floor-claim_{uid}.json": size}
        assert [path.name for path in journal(nodes.driver, uid)] == [f"{uid}.json"]

        floor.prepare(claim)
        assert gets(nodes) == before + 1

        floor.unprepare(claim)
        assert specs(nodes.driver) == {}
        (tombstone,) = journal(nodes.driver, uid)
        assert tombstone.read_bytes() == b"{}"


def test_the_driver_is_compared_with_the_floor_and_with_another_version(nodes: Nodes) -> None:
    floor = beside_floor(nodes.driver, nodes.claims, ONE_ROUND)
    former = beside_former((nodes.driver, nodes.former), (nodes.claims, nodes.former_claims), ONE_ROUND)

    for table in (floor, former):
        assert [row.what for row in table] == list(CALLS.values())
        assert all(row.spread.median > 0 and not row.unit for row in table)
    assert specs(nodes.driver) == specs(nodes.former) == {}
