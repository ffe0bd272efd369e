"""What a look keeps of earlier ones where calls fail, and what it does not know."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

import pytest

from driver.hardware.inventory import Discovery
from driver.nvml.api import FabricInfoState
from driver.nvml.deadline import Guard
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.nvml.fake_nvml import FakeDevice, FakeNvml
from tests.controller.mig_node import cut
from tests.driver.hardware.looked_at import Node, reasons, without_problems


def test_what_a_gpu_has_told_counts_on_while_a_call_fails(node: Node) -> None:
    before = node.discovery.snapshot()
    for call in ("mig_mode", "nvlinks", "memory_bytes", "brand"):
        node.machine.fail(call, gpu=1)
    after = node.discovery.snapshot()
    assert tuple(map(without_problems, after.gpus)) == tuple(map(without_problems, before.gpus))
    assert reasons(after) == {1: ["failing"] * 4}


def test_what_another_board_has_told_is_not_known_of_the_one_that_took_its_place(node: Node) -> None:
    node.discovery.snapshot()
    node.machine.replace_board(1)
    node.machine.fail("memory_bytes", gpu=1)
    gpu = node.discovery.snapshot().gpus[1]
    assert (gpu.memory_bytes, gpu.unanswered) == (None, frozenset({"memory_bytes"}))


def test_the_most_counts_that_the_driver_has_kept_of_the_memory_of_a_board(node: Node) -> None:
    def kept() -> int | None:
        return node.discovery.snapshot().gpus[0].reserved_bytes

    assert kept() == 454 * 2**20
    node.machine.use(0, reserved_bytes=446 * 2**20)
    assert kept() == 454 * 2**20
    node.machine.use(0, reserved_bytes=500 * 2**20)
    assert kept() == 500 * 2**20
    node.machine.replace_board(0)
    node.machine.use(0, reserved_bytes=446 * 2**20)
    assert kept() == 446 * 2**20


def test_not_supported_is_a_fault_of_a_board_that_has_answered_before(node: Node) -> None:
    before = node.discovery.snapshot()
    node.machine.not_supported("mig_mode", gpu=0)
    node.machine.not_supported("nvlinks", gpu=1)
    after = node.discovery.snapshot()
    assert (after.gpus[0].mig, reasons(after)) == (before.gpus[0].mig, {0: ["failing"]})
    assert after.gpus[1].switch_links == 0


def test_gpus_that_never_told_who_they_are_are_unread_where_the_kernel_has_them(tmp_path: Path) -> None:
    hasty = Node("hgx-h100", tmp_path, 1.0)
    hasty.machine.lose(3)
    hasty.machine.hang("device_by_index", gpu=6)
    hasty.machine.fail("uuid", gpu=7)
    unread = hasty.discovery.snapshot().unread
    assert {str(one.pci): [problem.reason for problem in one.problems] for one in unread} == {
        str(hasty.machine.pci(3)): ["lost"],
        str(hasty.machine.pci(6)): ["hung"],
        str(hasty.machine.pci(7)): ["failing"],
    }
    hasty.machine.heal()
    hasty.guard.close()


def test_a_gpu_that_the_nvidia_driver_has_and_nvml_never_listed_is_unread(node: Node) -> None:
    node.machine.remove(2)
    [unread] = node.discovery.snapshot().unread
    assert (unread.pci, [problem.reason for problem in unread.problems]) == (
        node.machine.pci(node.machine.spec.slots[2].pci),
        ["lost"],
    )


def test_a_gpu_of_another_driver_or_off_the_bus_is_not_unread(node: Node) -> None:
    node.bind(2, "vfio-pci")
    node.unplug(4)
    assert node.discovery.snapshot().unread == ()


@pytest.mark.parametrize(
    ("state", "value", "words"),
    [("in-progress", "", "still being set up"), ("not-started", "not-started", "CUDA fails with error 802")],
)
def test_a_fabric_that_is_not_up_is_a_problem_of_gpus_outside_mig_mode_until_it_is(
    tmp_path: Path, state: FabricInfoState, value: str, words: str
) -> None:
    machine = FakeMachine.open("gb200-tray")
    cut(machine, 0, slices=1, start=0)
    discovery = Discovery(machine.nvml(), tmp_path, Guard())
    before = discovery.snapshot()

    machine.fabric.register(state)

    after = discovery.snapshot()
    assert reasons(after) == {1: ["fabric"], 2: ["fabric"], 3: ["fabric"]}
    [problem] = after.gpus[1].problems
    assert (problem.value, words in problem.message) == (value, True)
    assert tuple(map(without_problems, after.gpus)) == tuple(map(without_problems, before.gpus))
    machine.fabric.register("completed")
    assert discovery.snapshot() == before


def test_where_nvswitches_are_shared_out_a_gpu_waits_for_its_partition_and_is_not_ill(tmp_path: Path) -> None:
    machine = FakeMachine.open("hgx-h100-shared-nvswitch")
    machine.fabric.register("not-started")
    discovery = Discovery(machine.nvml(), tmp_path, Guard(), machine.fabric.manager())
    assert reasons(discovery.snapshot()) == {}


class _OneAtATime:
    """NVML of a kernel that initialises one GPU after the other."""

    def __init__(self, nvml: FakeNvml) -> None:
        self._plain = nvml.device_by_index
        self._lock = Lock()

    def device_by_index(self, index: int) -> FakeDevice:
        with self._lock:
            return self._plain(index)


@pytest.mark.parametrize("is_slow", [True, False], ids=["each takes long", "each at once"])
def test_the_first_handles_of_a_session_are_taken_with_patience(tmp_path: Path, is_slow: bool) -> None:
    node = Node("a30-quad", tmp_path, 0.4)
    nvml = node.machine.nvml()
    if is_slow:
        nvml.device_by_index = _OneAtATime(nvml).device_by_index  # type: ignore[method-assign]
    discovery = Discovery(nvml, node.sysfs, node.guard)
    node.machine.slow(0.6, "device_by_index")

    assert reasons(discovery.snapshot()) == {}
    assert set(reasons(discovery.snapshot())) == {0, 1, 2, 3}
    node.machine.heal()
    node.guard.close()
