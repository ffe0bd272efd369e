"""From the NVIDIA driver's events to the taints that are stored, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from driver.devices.node_state import Healed, NodeState
from driver.devices.region import Region
from driver.health.health_rules import HealthRules
from driver.health.judge import Incident
from driver.nvml.health.calls import RemappedRows
from driver.nvml.real import RealNvml
from driver.policy.rules import NodeConfig, Rule
from envtest.embedded.server import ALWAYS, Fault
from fakegpu.machine.fake_machine import FakeMachine
from tests.controller.health.sick_node import SickNode
from tests.controller.mig_node import DYNAMIC, cut
from tests.controller.published import SLICES
from tests.driver.nvml.c_library import CLibrary
from tests.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from envtest.embedded.server import EmbeddedApiServer

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


def quiet(node: SickNode) -> None:
    """Look so late that what was told before may be over."""
    node.clock.seconds += 15
    node.look()


def reset_of(node: SickNode, gpu: int) -> NodeState:
    """What the plugin reports once it has reset the GPU."""
    return NodeState(healed=(Healed(node.machine.pci(gpu), round(node.clock.seconds * 1000) + 1),))


def test_a_fatal_xid_taints_its_gpu_alone_and_goes_once_nvml_says_that_all_is_well(node: SickNode) -> None:
    node.start().machine.recovery_action(3, "reset")
    node.machine.xid(3, 95)
    node.becomes({3: ["xid=95:NoSchedule", "needs-reset=xid-95:NoSchedule"]})
    quiet(node)
    node.becomes({3: ["xid=95:NoSchedule", "needs-reset=xid-95:NoSchedule"]})

    node.machine.reset(3)
    quiet(node)

    node.becomes({})


def test_a_fault_of_a_program_taints_nothing_and_is_told_once(node: SickNode) -> None:
    node.start()
    node.machine.xid(2, 31, times=5)
    node.machine.xid(3, 94)
    node.becomes({3: ["xid=94:NoSchedule"]})
    assert len(node.told("GpuFault")) == 1


def test_an_event_has_the_gpus_looked_at_at_once(node: SickNode) -> None:
    node.start()
    node.machine.rows(4, RemappedRows(0, 1, pending=True, failed=False))
    node.machine.xid(4, 63)
    node.becomes({4: ["memory=rows-pending:None"]})


def test_people_are_told_once_of_each_change(node: SickNode) -> None:
    node.start()
    node.machine.xid(3, 95, times=20)
    node.becomes({3: RESET_BY_95})
    quiet(node)
    node.becomes({})
    (well,) = eventually("it is told", lambda: node.told("GpuWell"))  # slices may be written before
    (sick,) = node.told("GpuSick")
    assert "XID 95" in sick
    assert "needs-reset" in sick
    assert "XID 95" in well


def test_series_tell_what_is_wrong_and_how_often_it_happened(node: SickNode) -> None:
    node.start()
    node.machine.xid(3, 95, times=2)
    node.machine.xid(4, 31)
    node.becomes({3: RESET_BY_95})
    node.published.becomes(lambda: ("31",) in node.series("gpu_dra_gpu_xids_total"))
    assert node.series("gpu_dra_gpu_xids_total") == {("95",): 2.0, ("31",): 1.0}
    taints = {
        ("gpu.nvidia.com/xid", "95", "NoSchedule"): 1.0,
        ("gpu.nvidia.com/needs-reset", "xid-95", "NoSchedule"): 1.0,
    }
    node.published.becomes(lambda: node.series("gpu_dra_gpu_sick") == taints)
    quiet(node)
    node.published.becomes(lambda: node.series("gpu_dra_gpu_sick") == {})


def test_a_burst_of_events_on_one_gpu_hides_no_other(node: SickNode) -> None:
    node.start()
    writes = node.published.settles()
    node.machine.xid(0, 119, times=1000)
    node.machine.xid(5, 95)
    node.becomes({0: ["xid=119:NoSchedule", "needs-reset=xid-119:NoSchedule"], 5: RESET_BY_95})
    assert node.published.settles() - writes <= 4
    assert node.looks < 10


def test_an_api_server_that_is_away_misses_nothing(node: SickNode) -> None:
    node.start()
    node.published.publishes(8)
    node.server.faults.add(Fault("*", "resourceslices", times=ALWAYS))
    node.machine.xid(1, 95)
    node.published.becomes(lambda: bool(node.incidents.verdicts()))
    node.server.faults.clear()
    node.becomes({1: RESET_BY_95})


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


def test_sets_that_nvml_does_not_free_end_nothing(server: EmbeddedApiServer, tmp_path: Path) -> None:
    machine = FakeMachine.open("hgx-h100")
    library = CLibrary(machine.nvml())
    library.frees = False
    node = SickNode(server, tmp_path, machine, nvml=RealNvml(load=lambda _: library)).start()
    try:
        machine.xid(4, 79)
        node.published.becomes(lambda: "gpu-lost" in str(node.taints().get(node.name(4))))
        machine.xid(5, 95)
        node.published.becomes(lambda: node.taints().get(node.name(5)) == RESET_BY_95)
    finally:
        node.end()


def test_after_letting_go_of_nvml_events_are_heard_again(node: SickNode) -> None:
    node.start()
    with node.discovery.let_go():
        pass
    before = node.looks
    eventually("a new set is made", lambda: node.looks, lambda looks: looks > before)
    node.machine.xid(5, 95)
    node.becomes({5: RESET_BY_95})


def test_a_gpu_that_hangs_keeps_no_other_from_being_heard(server: EmbeddedApiServer, tmp_path: Path) -> None:
    node = SickNode(server, tmp_path, deadline_seconds=1.0).start()
    try:
        node.machine.hang(gpu=0)
        node.machine.xid(5, 94, gpu_instance=3, compute_instance=0)
        node.published.becomes(lambda: node.taints().get(node.name(5)) == ["xid=94:NoSchedule"])
    finally:
        node.end()


def test_pods_are_evicted_where_the_admin_asks_for_it(server: EmbeddedApiServer, tmp_path: Path) -> None:
    rules = NodeConfig(health=HealthRules({94: "needs-reset"}, frozenset({"needs-reset"})))
    node = SickNode(server, tmp_path, rules=rules).start()
    try:
        node.machine.xid(3, 94)
        node.becomes({3: ["xid=94:NoSchedule", "needs-reset=xid-94:NoExecute"]})
        node.machine.recovery_action(2, "reset")
        node.look()
        node.published.becomes(lambda: node.taints().get(node.name(2)) == ["needs-reset=reset:NoExecute"])
    finally:
        node.end()


def test_a_restarted_controller_keeps_faults_also_if_a_kubelet_deletes_the_slices(
    server: EmbeddedApiServer, tmp_path: Path
) -> None:
    machine = FakeMachine.open("hgx-h100")
    machine.not_supported("recovery_action")
    first = SickNode(server, tmp_path, machine).start()
    first.machine.xid(3, 95)
    first.becomes({3: RESET_BY_95})
    times = [one["timeAdded"] for device in first.devices() for one in device.get("taints", ())]
    first.end()
    machine.not_supported("recovery_action")

    second = SickNode(server, tmp_path, machine).start()
    quiet(second)
    second.published.settles()
    second.becomes({3: RESET_BY_95})
    assert times == [one["timeAdded"] for device in second.devices() for one in device.get("taints", ())]
    second.end()
    machine.not_supported("recovery_action")
    server.delete(SLICES)

    third = SickNode(server, tmp_path, machine).start()
    try:
        third.becomes({3: RESET_BY_95})
        third.incidents.plugin_reports(reset_of(third, 3))
        third.becomes({})
    finally:
        third.end()


def test_a_contained_fault_stays_contained_over_a_restart(server: EmbeddedApiServer, tmp_path: Path) -> None:
    machine = FakeMachine.open("hgx-h100")
    for _ in range(2):
        machine.not_supported("recovery_action")
        node = SickNode(server, tmp_path, machine).start()
        if not node.taints():
            node.incidents.report(Incident(Region(machine.pci(3)), 95, "contained"))
        node.published.settles()
        node.becomes({3: ["xid=95:NoSchedule"]})
        node.end()


def test_a_fault_that_no_slice_told_of_before_the_process_died_is_published_by_the_next(
    server: EmbeddedApiServer, tmp_path: Path
) -> None:
    machine = FakeMachine.open("hgx-h100")
    machine.not_supported("recovery_action")
    killed = SickNode(server, tmp_path, machine).start()
    killed.published.publishes(8)
    killed.published.writer.writes_left = 0
    machine.xid(3, 95)
    assert killed.published.writer.refused.wait(10)
    killed.end()
    assert killed.taints() == {}
    machine.not_supported("recovery_action")

    node = SickNode(server, tmp_path, machine).start()
    try:
        node.becomes({3: RESET_BY_95})
    finally:
        node.end()


def test_a_fault_of_a_partition_taints_what_lies_over_it_alone(
    server: EmbeddedApiServer, tmp_path: Path
) -> None:
    machine = FakeMachine.open("hgx-h100")
    node = SickNode(server, tmp_path, machine, NodeConfig((Rule(None, DYNAMIC),))).start()
    try:
        cut(machine, 0, 1, 2)
        node.machine.xid(0, 94, gpu_instance=only_instance(node), compute_instance=0)
        node.published.becomes(lambda: "xid=94" in str(node.taints()))
        hit = {name for name, found in node.taints().items() if "xid=94:NoSchedule" in found}
        of_gpu = {device["name"] for device in node.devices() if node.name(0) in device["name"]}
        assert {name for name in hit if "-1g-" in name} == {f"{node.name(0)}-mig-1g-10gb-2"}
        assert f"{node.name(0)}-mig-3g-40gb-0" in hit
        assert hit < of_gpu, "partitions beside it take new pods"
    finally:
        node.end()


def test_a_fault_that_comes_back_is_held_to_be_there_for_a_while(node: SickNode) -> None:
    node.start()
    for _ in range(2):
        node.machine.recovery_action(1, "reset")
        node.look()
        node.becomes({1: ["needs-reset=reset:NoSchedule"]})
        node.machine.recovery_action(1, "none")
        node.look()
    node.becomes({1: ["needs-reset=reset:NoSchedule"]})  # it was back
    node.clock.seconds += 31
    node.look()
    node.becomes({})
