"""Pods that wait say why, as explain would say it, added up over the nodes."""

from pathlib import Path

from gpuctl.simulate.cluster import load_classes, planned_cluster
from gpuctl.simulate.placing import simulate
from gpuctl.simulate.results import Why
from tests.clusters import plan_node
from tests.gpuctl.simulate.workloads import group, wants


def test_pods_that_insist_on_memory_that_holds_say_which_nodes_hold_none(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text("version: v1\nrules:\n- {shared: {strategy: TimeSlicing, shares: 4}}\n")
    nodes = [(1, plan_node(machine, "node", config).slices) for machine in ("l4-quad", "a30-quad")]
    cluster = planned_cluster(nodes, load_classes(()))

    (result,) = simulate(cluster, [group("held", 17, wants(1, "shared-memory"))], 1).groups

    assert (result.placed, result.nodes) == (16, 1)
    assert Why("too little is left next to pods of held", 4, 1) in result.why
    older = "memory limits of shares are not enforced there: its NVIDIA driver 570.133.20 is older than R615"
    assert any(older in one.reason for one in result.why)
