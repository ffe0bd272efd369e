"""The inventory: what NVML and sysfs tell, and that one broken GPU hides no other."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import pytest

from driver.nvml.api import NotFound
from fakegpu.fabric.state import Registration
from tests.controller.mig_node import cut
from tests.driver.hardware.looked_at import Node, reasons, without_problems
from tests.eventually import eventually
from tests.gpus import (
    AttributeValue,
    Code,
    Discovery,
    FakeDevice,
    FakeMachine,
    GpuLost,
    Guard,
    InstanceNotFound,
    Inventory,
    LetGo,
    NvmlCallFailed,
    NvmlTimeout,
    PciAddress,
    known_machines,
    node_offers,
)

RACK = "5c2f8d1e-7a34-4b60-9e15-d30b6c8f4a72.4026"
"""The clique of the GB200."""


def test_a_whole_gpu_is_known(node: Node) -> None:
    inventory = node.discovery.snapshot()
    assert (inventory.driver_version, inventory.cuda_driver_version) == ("580.95.05", "13.0")
    assert inventory.problems == ()
    gpu = inventory.gpus[4]
    assert gpu.uuid == node.machine.uuid(gpu.pci)
    assert (str(gpu.pci), gpu.minor, gpu.index) == ("0000:9d:00.0", 4, 4)
    assert (gpu.product_name, gpu.brand, gpu.architecture) == ("NVIDIA H100 80GB HBM3", "Nvidia", "Hopper")
    assert (gpu.cuda_compute_capability, gpu.memory_bytes) == ("9.0", 81559 * 2**20)
    assert (gpu.addressing_mode, gpu.numa_node, gpu.pcie_root) == ("HMM", 1, "pci0000:97")
    assert (gpu.mig_capable, gpu.mig_enabled, gpu.virtualization) == (True, False, "none")
    assert (gpu.switch_links, gpu.links, gpu.vgpu_profile, gpu.memory_limits) == (18, (), None, False)


def test_a_fabric_of_several_machines_is_a_clique(tmp_path: Path) -> None:
    gpus = Node("gb200-tray", tmp_path).discovery.snapshot().gpus
    assert {gpu.fabric_clique for gpu in gpus} == {RACK}
    assert [str(gpu.pci)[:4] for gpu in gpus] == ["0008", "0009", "0018", "0019"]


def test_a_vgpu_guest_has_a_profile_and_no_mig(tmp_path: Path) -> None:
    (gpu,) = Node("a100-vgpu-guest", tmp_path).discovery.snapshot().gpus
    assert (gpu.virtualization, gpu.vgpu_profile, gpu.mig_capable) == ("vgpu", "A100-10C", False)


@pytest.mark.parametrize("machine", known_machines())
def test_every_machine_is_read_without_problems(tmp_path: Path, machine: str) -> None:
    node = Node(machine, tmp_path)
    inventory = node.discovery.snapshot()
    assert [gpu.pci for gpu in inventory.gpus] == [slot.pci for slot in node.machine.spec.slots]
    assert [gpu.minor for gpu in inventory.gpus] == [slot.minor for slot in node.machine.spec.slots]
    assert [gpu.numa_node for gpu in inventory.gpus] == [slot.numa_node for slot in node.machine.spec.slots]
    assert inventory.problems == ()
    lacking = {} if node.machine.spec.product.licensed else {0: ["unlicensed"], 1: ["unlicensed"]}
    assert reasons(inventory) == lacking
    assert node.discovery.snapshot() == inventory


def test_without_sysfs_nvml_tells_the_numa_node_and_the_root_is_unknown(tmp_path: Path) -> None:
    discovery = Discovery(FakeMachine.open("hgx-h100").nvml(), tmp_path, Guard())
    gpu = discovery.snapshot().gpus[7]
    assert (gpu.numa_node, gpu.pcie_root) == (1, None)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("name", "product_name"),
        ("brand", "brand"),
        ("architecture", "architecture"),
        ("compute_capability", "cuda_compute_capability"),
        ("memory_bytes", "memory_bytes"),
        ("memory_use", "reserved_bytes"),
        ("addressing_mode", "addressing_mode"),
        ("virtualization", "virtualization"),
        ("fabric", "fabric_clique"),
    ],
)
def test_a_field_is_absent_when_not_supported_and_a_problem_when_it_fails(
    node: Node, call: str, field: str
) -> None:
    node.machine.not_supported(call, gpu=1)
    node.machine.fail(call, gpu=2, code=Code.NO_PERMISSION)
    node.machine.fail(call, gpu=3, code=Code.UNKNOWN)
    inventory = node.discovery.snapshot()
    assert [getattr(inventory.gpus[gpu], field) for gpu in (1, 2, 3)] == [None, None, None]
    assert reasons(inventory) == {2: ["error"], 3: ["failing"]}
    assert [gpu.unanswered for gpu in inventory.gpus[:4]] == [set(), set(), {call}, {call}]
    node.machine.heal()
    assert reasons(node.discovery.snapshot()) == {}


def test_a_lost_gpu_stays_as_it_was_and_comes_back(node: Node) -> None:
    before = node.discovery.snapshot()
    node.machine.lose(3)
    after = node.discovery.snapshot()
    assert reasons(after) == {3: ["lost"]}
    assert tuple(map(without_problems, after.gpus)) == tuple(map(without_problems, before.gpus))
    assert "GPU_IS_LOST" in after.gpus[3].problems[0].message
    node.machine.restore(3)
    assert node.discovery.snapshot() == before


def test_hung_gpus_are_shown_as_they_were_and_heal(hasty: Node) -> None:
    before = hasty.discovery.snapshot()
    hasty.machine.hang("fabric", gpu=0)
    hasty.machine.hang("mig_mode", gpu=5)
    after = hasty.discovery.snapshot()
    assert reasons(after) == {0: ["hung"], 5: ["hung"]}
    assert after.gpus[5].problems[0].call == "nvmlDeviceGetMigMode"
    assert tuple(map(without_problems, after.gpus)) == tuple(map(without_problems, before.gpus))
    assert reasons(hasty.discovery.snapshot()) == {0: ["hung"], 5: ["hung"]}
    hasty.machine.heal()
    eventually("nothing hangs", hasty.guard.hung, lambda hung: not hung)
    assert hasty.discovery.snapshot() == before


def test_gpus_that_hang_at_the_first_look_delay_no_others_and_come_when_they_answer(hasty: Node) -> None:
    for gpu in (0, 2, 5):
        hasty.machine.hang("device_by_index", gpu=gpu)

    inventory = hasty.discovery.snapshot()

    assert hasty.guard.hung() == (), "the look has not waited for as long as these calls may take"
    assert [gpu.index for gpu in inventory.gpus] == [1, 3, 4, 6, 7]
    assert [problem.reason for problem in inventory.problems if problem.reason == "hung"] == ["hung"] * 3
    assert len(hasty.discovery.snapshot().gpus) == 5

    hasty.machine.heal()
    eventually("all answer", lambda: len(hasty.discovery.snapshot().gpus), lambda found: found == 8)
    assert hasty.discovery.snapshot().problems == ()


def test_nvml_is_not_let_go_of_while_a_gpu_has_not_answered_since_the_first_look(hasty: Node) -> None:
    hasty.machine.hang("device_by_index", gpu=2)
    hasty.discovery.snapshot()

    with pytest.raises(LetGo, match="GPU 2"), hasty.discovery.let_go():
        pass
    hasty.machine.heal()


def test_a_gpu_that_nvml_lists_no_more_is_lost_while_it_is_on_the_bus(node: Node) -> None:
    node.discovery.snapshot()
    node.machine.remove(2)
    inventory = node.discovery.snapshot()
    assert len(inventory.gpus) == 8
    assert [gpu.problems[0].reason for gpu in inventory.gpus if gpu.problems] == ["lost"]
    assert inventory.gpus[2].problems


def test_a_gpu_lost_while_indexes_move_is_not_taken_for_its_neighbour(node: Node) -> None:
    before = node.discovery.snapshot()
    node.unplug(1)
    lost = node.machine.pci(1)
    node.machine.lose(lost)
    inventory = node.discovery.snapshot()
    by_pci = {gpu.pci: gpu for gpu in inventory.gpus}
    assert set(by_pci) == {gpu.pci for gpu in before.gpus} - {before.gpus[1].pci}
    assert [str(pci) for pci, gpu in by_pci.items() if gpu.problems] == [str(lost)]


@pytest.mark.parametrize("code", [Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED])
@pytest.mark.parametrize("call", ["device_count", "device_by_index", "mig_mode"])
def test_a_session_that_ends_in_the_middle_of_a_look_is_begun_anew(node: Node, call: str, code: int) -> None:
    before = node.discovery.snapshot()
    node.machine.fail(call, code=code, times=1)
    assert node.discovery.snapshot() == before
    assert node.machine.state.faults == ()


def test_a_driver_reloaded_between_two_looks_is_noticed(node: Node) -> None:
    node.discovery.snapshot()
    node.machine.driver_gone()
    node.machine.set_minors({0: 1, 1: 0})
    node.machine.driver_back("590.10")
    inventory = node.discovery.snapshot()
    assert inventory.driver_version == "590.10"
    assert [gpu.minor for gpu in inventory.gpus[:2]] == [1, 0]


def test_a_node_call_that_hangs_is_a_timeout_and_not_a_hang(hasty: Node) -> None:
    hasty.machine.hang("device_count")
    with pytest.raises(NvmlTimeout, match="nvmlDeviceGetCount_v2 of the node"):
        hasty.discovery.snapshot()


def test_the_identity_of_a_broken_gpu_is_an_error_of_its_kind(hasty: Node) -> None:
    lost, hung, gone = hasty.machine.pci(0), hasty.machine.pci(1), PciAddress(0, 0x99, 0, 0)
    hasty.machine.lose(0)
    hasty.machine.hang("uuid", gpu=1)
    for pci, kind in ((lost, GpuLost), (hung, NvmlTimeout), (gone, NotFound)):
        with pytest.raises(NvmlCallFailed) as caught:
            hasty.discovery.identity(pci)
        assert type(caught.value) is kind
        assert str(pci) in str(caught.value)


def test_the_identity_says_whether_the_board_can_do_mig_at_all(node: Node, tmp_path: Path) -> None:
    plain = Node("t4", tmp_path / "t4")
    for one, can in ((node, True), (plain, False)):
        assert one.discovery.identity(one.machine.pci(0)).can_do_mig is can


def test_many_threads_can_ask_while_the_driver_is_reloaded(node: Node) -> None:
    addresses = [gpu.pci for gpu in node.discovery.snapshot().gpus]
    node.machine.driver_gone()
    node.machine.driver_back()
    with ThreadPoolExecutor(len(addresses)) as pool:
        asked = [pool.submit(node.discovery.identity, pci) for pci in addresses]
        assert [one.result(10).minor for one in asked] == list(range(8))


def test_a_job_that_misses_an_instance_leaves_the_gpu_its_one_thread(node: Node) -> None:
    node.discovery.snapshot()
    pci = node.machine.pci(0)

    def job(_device: object, _watch: object) -> int:
        raise InstanceNotFound("nvmlDeviceGetGpuInstanceById", Code.NOT_FOUND, str(pci))

    def thread_of(_device: object, _watch: object) -> int:
        return threading.get_ident()

    before = node.discovery.on_gpu(pci, thread_of)
    with pytest.raises(InstanceNotFound):
        node.discovery.on_gpu(pci, job)
    assert node.discovery.on_gpu(pci, thread_of) == before, "else two jobs could be at work on it at once"


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


def test_gpus_that_never_told_who_they_are_are_unread_where_the_kernel_has_them(hasty: Node) -> None:
    hasty.machine.lose(3)
    hasty.machine.hang("device_by_index", gpu=6)
    hasty.machine.fail("uuid", gpu=7)
    unread = hasty.discovery.snapshot().unread
    assert {str(one.pci): [problem.reason for problem in one.problems] for one in unread} == {
        str(hasty.machine.pci(3)): ["lost"],
        str(hasty.machine.pci(6)): ["hung"],
        str(hasty.machine.pci(7)): ["failing"],
    }


def test_a_gpu_that_nvml_never_listed_is_unread_while_the_nvidia_driver_has_it(node: Node) -> None:
    node.bind(2, "vfio-pci")
    node.unplug(3)
    lost = node.machine.pci(4)
    node.machine.remove(4)
    [unread] = node.discovery.snapshot().unread
    assert (unread.pci, [problem.reason for problem in unread.problems]) == (lost, ["lost"])


def cliques(seen: Inventory) -> list[AttributeValue | None]:
    """The cliques that the whole GPUs are published with; None for a GPU without one or in MIG mode."""
    published = {device.pci: device.attributes.get("fabricClique") for device in node_offers(seen).devices}
    return [published.get(gpu.pci) for gpu in seen.gpus]


@pytest.mark.parametrize(
    ("state", "value", "words"),
    [
        ("in-progress", "", "still being set up"),
        ("not-started", "not-started", "CUDA fails with error 802"),
        ("failed", "failed", "failed with UNKNOWN (999): see the log of nvidia-fabricmanager"),
    ],
)
def test_a_fabric_that_is_not_up_is_a_problem_of_gpus_outside_mig_mode_until_it_is(
    tmp_path: Path, state: Registration, value: str, words: str
) -> None:
    node = Node("gb200-tray", tmp_path)
    machine, discovery = node.machine, node.discovery
    cut(machine, 0, slices=1, start=0)
    before = discovery.snapshot()
    assert cliques(before) == [None, RACK, RACK, RACK]

    machine.fabric.register(state)

    after = discovery.snapshot()
    assert reasons(after) == {1: ["fabric"], 2: ["fabric"], 3: ["fabric"]}
    [problem] = after.gpus[1].problems
    assert (problem.value, words in problem.message) == (value, True)
    assert tuple(map(without_problems, after.gpus)) == tuple(map(without_problems, before.gpus))
    assert cliques(after) == [None] * 4
    machine.fabric.register("completed")
    assert discovery.snapshot() == before


def test_where_nvswitches_are_shared_out_a_gpu_waits_for_its_partition_and_is_not_ill(tmp_path: Path) -> None:
    node = Node("hgx-h100-shared-nvswitch", tmp_path)
    node.machine.fabric.register("not-started")
    assert reasons(node.discovery.snapshot()) == {}


@pytest.mark.parametrize("is_slow", [True, False], ids=["each takes long", "each at once"])
def test_the_first_handles_of_a_session_are_taken_with_patience(tmp_path: Path, is_slow: bool) -> None:
    with Node.looking("a30-quad", tmp_path, 0.4) as node:
        plain, kernel = node.nvml.device_by_index, Lock()

        def one_after_the_other(index: int) -> FakeDevice:
            with kernel:
                return plain(index)

        if is_slow:
            node.nvml.device_by_index = one_after_the_other  # type: ignore[method-assign]
        node.machine.slow(0.6, "device_by_index")

        assert reasons(node.discovery.snapshot()) == {}
        assert set(reasons(node.discovery.snapshot())) == {0, 1, 2, 3}


def test_the_processes_of_a_gpu_are_told(node: Node) -> None:
    node.machine.set_processes(4, (17, 5))
    assert [node.discovery.process_ids(node.machine.pci(gpu)) for gpu in (4, 3)] == [(5, 17), ()]
