"""From the NVIDIA driver's events to the taints that are stored, and back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import EmbeddedApiServer
from tests.controller.health.sick_node import SickNode
from tests.controller.mig_node import DYNAMIC, cut
from tests.controller.published import SLICES
from tests.eventually import eventually
from tests.gpus import FakeMachine, Healed, NodeConfig, NodeState, Rule

SICK_BY_95 = {"xid": "95", "needs-reset": "xid-95"}
RESET_BY_95 = ["xid=95:NoSchedule", "needs-reset=xid-95:NoSchedule"]


@pytest.fixture
def node(server: EmbeddedApiServer, tmp_path: Path) -> Iterator[SickNode]:
    """Eight H100."""
    one = SickNode(server, tmp_path)
    yield one
    one.end()


def only_instance(node: SickNode) -> int:
    """The id of the one GPU instance of the first GPU."""
    (one,) = node.discovery.on_gpu(
        node.machine.pci(0), lambda device, watch: watch("gpu_instances", device.gpu_instances)
    )
    return one.id


def added(node: SickNode) -> list[str]:
    """When the taints were made."""
    return [one["timeAdded"] for device in node.published.devices() for one in device.get("taints", ())]


def quiet(node: SickNode) -> None:
    """Look so late that what was told before may be over."""
    node.clock.now += 15
    node.look()


def test_a_fatal_xid_taints_its_gpu_and_is_told_until_nvml_says_that_all_is_well(node: SickNode) -> None:
    node.start().machine.xid(3, 95, times=20)
    node.machine.xid(4, 31)
    node.becomes({3: RESET_BY_95})
    (sick,) = eventually("it is told", lambda: node.told("GpuSick"))
    assert "XID 95" in sick
    assert "needs-reset" in sick
    xids = {("95",): 20.0, ("31",): 1.0}
    node.published.becomes(lambda: node.series("gpu_dra_gpu_xids_total") == xids)
    taints = {(f"gpu.nvidia.com/{key}", value, "NoSchedule"): 1.0 for key, value in SICK_BY_95.items()}
    node.published.becomes(lambda: node.series("gpu_dra_gpu_sick") == taints)
    quiet(node)

    node.becomes({})
    (well,) = eventually("it is told", lambda: node.told("GpuWell"))  # slices may be written before
    assert "XID 95" in well
    node.published.becomes(lambda: node.series("gpu_dra_gpu_sick") == {})


def test_a_wait_that_fails_is_begun_anew_and_what_was_missed_is_looked_at(node: SickNode) -> None:
    node.start()
    node.machine.fail("wait_events", times=3)
    node.machine.recovery_action(6, "drain-and-reset")
    node.machine.xid(7, 94)  # wakes whoever waits
    node.published.becomes(lambda: "needs-reset" in str(node.taints().get(node.name(6))))
    node.machine.xid(2, 95)
    node.published.becomes(lambda: node.taints().get(node.name(2)) == RESET_BY_95)


def test_a_gpu_that_falls_off_the_bus_leaves_the_events_of_the_others(node: SickNode) -> None:
    node.start()
    node.machine.xid(4, 79)
    lost = node.name(4)
    node.published.becomes(lambda: "gpu-lost" in str(node.taints().get(lost)))
    node.published.becomes(lambda: "needs-reboot=xid-79:NoSchedule" in node.taints()[lost])
    node.machine.xid(5, 95)
    node.published.becomes(lambda: node.taints().get(node.name(5)) == RESET_BY_95)


def test_a_restarted_controller_keeps_faults_also_if_a_kubelet_deletes_the_slices(
    server: EmbeddedApiServer, tmp_path: Path
) -> None:
    machine = FakeMachine.open("hgx-h100")
    machine.not_supported("recovery_action")
    first = SickNode(server, tmp_path, machine).start()
    first.machine.xid(3, 95)
    first.becomes({3: RESET_BY_95})
    times = added(first)
    first.end()
    machine.not_supported("recovery_action")

    second = SickNode(server, tmp_path, machine).start()
    quiet(second)
    second.published.settles()
    second.becomes({3: RESET_BY_95})
    assert added(second) == times
    second.end()
    machine.not_supported("recovery_action")
    server.delete(SLICES)

    third = SickNode(server, tmp_path, machine).start()
    try:
        third.becomes({3: RESET_BY_95})
        reset = Healed(machine.pci(3), round(third.clock.now * 1000) + 1)
        third.incidents.plugin_reports(NodeState(healed=(reset,)))
        third.becomes({})
    finally:
        third.end()


def test_a_fault_of_a_partition_taints_what_lies_over_it_alone(node: SickNode) -> None:
    node.rules = NodeConfig((Rule(None, DYNAMIC),))
    node.start()
    cut(node.machine, 0, 1, 2)
    node.machine.xid(0, 94, gpu_instance=only_instance(node), compute_instance=0)
    node.published.becomes(lambda: "xid=94" in str(node.taints()))
    hit = {name for name, found in node.taints().items() if "xid=94:NoSchedule" in found}
    of_gpu = {device["name"] for device in node.published.devices() if node.name(0) in device["name"]}
    assert {name for name in hit if "-1g-" in name} == {f"{node.name(0)}-mig-1g-10gb-2"}
    assert f"{node.name(0)}-mig-3g-40gb-0" in hit
    assert hit < of_gpu, "partitions beside it take new pods"
