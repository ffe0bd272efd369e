"""Virtual functions are turned on for a GPU that nobody has, whatever step is the last before a crash."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpus import ClaimBlocked, NodeIncomplete, PciAddress, read_function
from tests.kubeletplugin.devices.kinds.vgpu.vgpu_node import A100, L40S, opened
from tests.kubeletplugin.fake_node import Crash, FakeNode
from tests.plugin import FunctionInUse, FunctionNotMoved, NotLetGo
from tests.vgpu_hosts import turn_virtual_off

FIRST = {L40S: PciAddress.parse("0000:17:00.0"), A100: PciAddress.parse("0000:3b:00.0")}
GPU = FIRST[L40S]
OTHER = PciAddress.parse("0000:b1:00.0")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FakeNode]:
    """A host whose virtual functions are off."""
    found = opened_off(tmp_path, L40S)
    yield found
    found.stop()


def opened_off(folder: Path, machine: str) -> FakeNode:
    node = opened(folder, machine)
    for gpu in node.gpus:
        turn_virtual_off(node.kernel, node.sysfs, gpu)
    return node


def is_on(node: FakeNode, gpu: PciAddress = GPU) -> bool:
    """Whether the GPU is back with its driver, which has all its virtual functions; else all must be off."""
    function = read_function(node.sysfs, gpu)
    assert function is not None
    assert function.driver == "nvidia"
    if not function.virtual:
        return False
    found = [read_function(node.sysfs, pci) for pci in function.virtual]
    assert [one.driver for one in found if one] == ["nvidia"] * function.total_virtual
    return True


def override(node: FakeNode) -> str:
    return (node.sysfs / "bus/pci/devices" / str(GPU) / "driver_override").read_text().strip()


def listed(node: FakeNode) -> set[PciAddress]:
    return {gpu.pci for gpu in node.discovery.snapshot().gpus}


@pytest.mark.parametrize("machine", [L40S, A100])
def test_all_of_them_are_on_and_nothing_else_has_changed(tmp_path: Path, machine: str) -> None:
    node = opened_off(tmp_path, machine)
    try:
        before = listed(node)
        node.virtual.enable(FIRST[machine])
        assert is_on(node, FIRST[machine])
        assert (
            node.sysfs / "bus/pci/devices" / str(FIRST[machine]) / "driver_override"
        ).read_text() == "(null)\n"
        assert listed(node) == before
        host = node.discovery.snapshot().gpus[0].vgpu
        assert host is not None
        assert host.framework is not None
        assert not is_on(node, max(before)), "no other GPU is touched"
    finally:
        node.stop()


def test_nothing_is_done_while_a_claim_has_the_gpu(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.prepared_devices("vm", "gpu-0000-17-00-0-vfio")
    monkeypatch.setattr(node.kernel, "write", _refuse)
    with pytest.raises(ClaimBlocked, match="1 claims hold GPU"):
        node.virtual.enable(GPU)


def test_nothing_is_done_while_a_process_has_the_gpu_open(node: FakeNode) -> None:
    node.machine.set_processes(0, (4711,))
    with pytest.raises(FunctionInUse, match="in use"):
        node.virtual.enable(GPU)
    assert not is_on(node)
    assert override(node) == "(null)"
    node.machine.set_processes(0, ())
    node.virtual.enable(GPU)
    assert is_on(node)


def test_the_controller_is_asked_to_let_go_and_an_old_one_has_it_wait(node: FakeNode) -> None:
    node.controllers.joined("")
    with pytest.raises(NotLetGo):
        node.virtual.enable(GPU)
    assert not is_on(node)
    node.controllers.left("")
    node.virtual.enable(GPU)
    assert is_on(node)


def test_where_the_kernel_refuses_the_number_the_gpu_comes_back(node: FakeNode) -> None:
    node.machine.spoil_kernel("fail", "sriov_numvfs", errno.ENOMEM, 1)
    with pytest.raises(FunctionNotMoved, match="turning on its virtual functions failed: Cannot allocate"):
        node.virtual.enable(GPU)
    assert not is_on(node)
    assert override(node) == "(null)"
    assert listed(node) == {GPU, OTHER}
    node.virtual.enable(GPU)
    assert is_on(node)


def test_an_override_of_somebody_else_is_left(node: FakeNode) -> None:
    file = node.sysfs / "bus/pci/devices" / str(GPU) / "driver_override"
    node.kernel.write(file, "vfio-pci\n", 1.0)
    with pytest.raises(FunctionNotMoved, match="another program set its driver_override to vfio-pci"):
        node.virtual.enable(GPU)
    node.virtual.finish()
    assert override(node) == "vfio-pci"


def test_a_gpu_that_can_have_none_is_refused(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, "a30-quad", binds=True)
    try:
        with pytest.raises(NodeIncomplete, match="is not a GPU that can have virtual functions"):
            node.virtual.enable(node.gpus[0])
    finally:
        node.stop()


@pytest.mark.parametrize("last", [1, 2, 3, 4, 5, 6, 7, 20])
def test_the_next_start_finishes_what_a_crash_has_left(
    node: FakeNode, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = node.kernel.write, list[str]()

    def until_the_last(path: Path, text: str, deadline_seconds: float) -> None:
        write(path, text, deadline_seconds)
        written.append(text)
        if len(written) == last:
            raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(node.kernel, "write", until_the_last)
        with pytest.raises(Crash):
            node.virtual.enable(GPU)
    node.restart()
    node.virtual.finish()
    is_on(node)
    node.virtual.enable(GPU)

    assert is_on(node)
    assert listed(node) == {GPU, OTHER}


def _refuse(path: Path, text: str, _deadline_seconds: float) -> None:
    raise AssertionError(path, text)
