"""Virtual functions are turned on for a GPU that nobody has, whatever step is the last before a crash."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpus import PciAddress, read_function
from tests.kubeletplugin.devices.kinds.vgpu.vgpu_node import A100, L40S, opened
from tests.kubeletplugin.fake_node import Crash, FakeNode
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


def listed(node: FakeNode) -> set[PciAddress]:
    return {gpu.pci for gpu in node.discovery.snapshot().gpus}


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
